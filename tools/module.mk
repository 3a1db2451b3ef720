# The overhead benchmark: one program, run bare and under the library, and libraries that do nothing.
bench_dir := build/tools/bench

$(bench_dir)/libcudart.so.13: tools/bench_stubs.c preload/abi_cuda.h preload/abi_nccl.h
	@mkdir -p $(@D)
	$(call say,LD)
	$(Q)printf 'libcudart.so.13 { global: cuda*; };\nnccl { global: nccl*; local: *; };\n' > $@.map
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS) -Wno-unused-parameter -fPIC -shared -Wl,-Bsymbolic -Wl,-soname,$(@F) \
	    -Wl,--version-script=$@.map -o $@ $<

$(bench_dir)/bench-calls: tools/bench_calls.c $(bench_dir)/libcudart.so.13 tests/victims/fake_torch_api.h
	@mkdir -p $(@D)
	$(call say,LD)
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS) -o $@ $< $(bench_dir)/libcudart.so.13 -Wl,-rpath,'$$ORIGIN' \
	    -lpthread -ldl

bench_programs := $(bench_dir)/bench-calls $(victims_dir)/torch/libtorch_python.so
test_programs  += $(bench_programs)

bench: all $(bench_programs) ## measure what tracing costs
	@tools/bench
