# Stand-ins for libcudart and libnccl with the real sonames and symbol versions. -Bsymbolic: calls
# between their own functions must not pass a preloaded tracer; the real libraries' don't either.

sim_dir  := build/tests/sim
sim_libs := $(sim_dir)/libcudart.so.13 $(sim_dir)/libnccl.so.2
SIM_CPPFLAGS := -D_GNU_SOURCE -Itests/sim/cuda/include -Itests/sim
SIM_LDFLAGS  := -shared -Wl,-Bsymbolic -Wl,-z,now -Wl,-z,defs

$(sim_dir)/libcudart.so.13: tests/sim/cudart.c tests/sim/cudart.map tests/sim/module.mk
	@mkdir -p $(@D)
	$(CC) $(SIM_CPPFLAGS) $(CFLAGS) -fPIC -fvisibility=hidden $(DEPFLAGS) -MF $@.d $(SIM_LDFLAGS) \
	    -Wl,-soname,$(@F) -Wl,--version-script=tests/sim/cudart.map -o $@ $< -lpthread

$(sim_dir)/libnccl.so.2: tests/sim/nccl.c tests/sim/nccl.map $(sim_dir)/libcudart.so.13
	@mkdir -p $(@D)
	$(CC) $(SIM_CPPFLAGS) $(CFLAGS) -fPIC $(DEPFLAGS) -MF $@.d $(SIM_LDFLAGS) -Wl,-soname,$(@F) \
	    -Wl,--version-script=tests/sim/nccl.map -Wl,-rpath,'$$ORIGIN' -o $@ $< $(sim_dir)/libcudart.so.13

# the stand-ins' own test
build/tests/sim-test: tests/sim/selftest.c $(sim_libs)
	@mkdir -p $(@D)
	$(CC) $(SIM_CPPFLAGS) $(CFLAGS) $(DEPFLAGS) -o $@ $< $(sim_libs) -Wl,-rpath,'$$ORIGIN/sim' -lpthread

test_programs += build/tests/sim-test

-include $(wildcard build/tests/sim/*.d)
