# Trainings on the asynchronous stand-in CUDA libraries (tests/sim/cuda): real PyTorch, and C programs
# that use CUDA and NCCL in unusual ways. `make test` runs the quick part (tests/run).

cuda_tests := build/tests/cuda
CUDA_TEST_DEPS = tests/sim/cuda/simcuda.h tests/sim/sim.h tests/torch_cuda/module.mk
CUDA_TEST_CC   = $(CC) $(CUDASIM_CPPFLAGS) $(CFLAGS)
cuda_rpath    := -Wl,-rpath,'$$ORIGIN/../sim-cuda/13' -Wl,-rpath,'$$ORIGIN/../sim-cuda/12' -Wl,-rpath,'$$ORIGIN'

# $(1): version of the stand-ins
define cuda_loop
$(cuda_tests)/loop-$(1): tests/torch_cuda/programs/loop.c $$(CUDA_TEST_DEPS) $(cudasim)/$(1)/libnccl.so.2
	@mkdir -p $$(@D)
	$$(call say,LD)
	$$(Q)$$(CUDA_TEST_CC) -o $$@ $$< $(cudasim)/$(1)/libnccl.so.2 $(cudasim)/$(1)/libcudart.so.$(1) -ldl \
	    -Wl,-rpath,'$$$$ORIGIN/../sim-cuda/$(1)'

$(cuda_tests)/libhalf$(1).so: tests/torch_cuda/programs/runtimes.c $$(CUDA_TEST_DEPS) $(cudasim)/$(1)/libcudart.so.$(1)
	@mkdir -p $$(@D)
	$$(call say,LD)
	$$(Q)$$(CUDA_TEST_CC) -DHALF=$(1) -fPIC -shared -Wl,-soname,$$(@F) -o $$@ $$< \
	    $(cudasim)/$(1)/libcudart.so.$(1) -Wl,-rpath,'$$$$ORIGIN/../sim-cuda/$(1)'
endef
$(eval $(call cuda_loop,12))
$(eval $(call cuda_loop,13))

$(cuda_tests)/runtimes: tests/torch_cuda/programs/runtimes.c $(CUDA_TEST_DEPS) \
    $(cuda_tests)/libhalf12.so $(cuda_tests)/libhalf13.so
	$(call say,LD)
	$(Q)$(CUDA_TEST_CC) -o $@ $< $(cuda_tests)/libhalf12.so $(cuda_tests)/libhalf13.so $(cuda_rpath)

# two copies of NCCL in one process: fakes, which tell each other apart
copies_c := tests/torch_cuda/programs/copies.c
$(cuda_tests)/libinside.so: $(copies_c)
	@mkdir -p $(@D)
	$(call say,LD)
	$(Q)$(CC) $(CFLAGS) -DFAKE=1 -DHALF -fPIC -shared -Wl,-soname,$(@F) -o $@ $<
$(cuda_tests)/fake/libnccl.so.2: $(copies_c)
	@mkdir -p $(@D)
	$(call say,LD)
	$(Q)$(CC) $(CFLAGS) -DFAKE=2 -fPIC -shared -Wl,-soname,$(@F) -o $@ $<
$(cuda_tests)/libuser.so: $(copies_c) $(cuda_tests)/fake/libnccl.so.2
	$(call say,LD)
	$(Q)$(CC) $(CFLAGS) -DHALF -fPIC -shared -Wl,-soname,$(@F) -o $@ $^ -Wl,-rpath,'$$ORIGIN/fake'
$(cuda_tests)/copies: $(copies_c) $(cuda_tests)/libinside.so $(cuda_tests)/libuser.so
	$(call say,LD)
	$(Q)$(CC) $(CFLAGS) -o $@ $< -ldl

# the trainer of tests/trainer with NCCL inside it
$(cuda_tests)/trainer-static-nccl: $(trainer_o) $(cudasim)/13/libnccl_static.a $(cudasim)/13/libcudart.so.13
	@mkdir -p $(@D)
	$(call say,LD)
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ $(cuda_rpath) -lpthread -lm

# and with NCCL reached past everything preloaded
hidden_nccl := tests/torch_cuda/programs/hidden_nccl.c
$(cuda_tests)/libplugin.so: $(hidden_nccl) $(CUDA_TEST_DEPS) $(cudasim)/13/libnccl.so.2
	@mkdir -p $(@D)
	$(call say,LD)
	$(Q)$(CUDA_TEST_CC) -DPLUGIN -fPIC -shared -Wl,-soname,$(@F) -o $@ $< $(cudasim)/13/libnccl.so.2 $(cuda_rpath)
$(cuda_tests)/trainer-hidden-nccl: $(trainer_o) $(hidden_nccl) $(cuda_tests)/libplugin.so $(cudasim)/13/libcudart.so.13
	$(call say,LD)
	$(Q)$(CUDA_TEST_CC) -o $@ $(trainer_o) $(hidden_nccl) $(cudasim)/13/libcudart.so.13 $(cuda_rpath) -ldl -lpthread -lm

# a training that names its stages
ranges_c := tests/torch_cuda/programs/ranges.c
$(cuda_tests)/libnvToolsExt.so.1: $(ranges_c)
	@mkdir -p $(@D)
	$(call say,LD)
	$(Q)$(CC) $(CFLAGS) -DNVTX -fPIC -shared -Wl,-soname,$(@F) -o $@ $<
$(cuda_tests)/ranges: $(ranges_c) $(cuda_tests)/libnvToolsExt.so.1 $(CUDA_TEST_DEPS) $(cudasim)/12/libnccl.so.2
	$(call say,LD)
	$(Q)$(CUDA_TEST_CC) -o $@ $< $(cuda_tests)/libnvToolsExt.so.1 $(cudasim)/12/libnccl.so.2 \
	    $(cudasim)/12/libcudart.so.12 -Wl,-rpath,'$$ORIGIN/../sim-cuda/12' -Wl,-rpath,'$$ORIGIN'

cuda_programs := $(addprefix $(cuda_tests)/,loop-12 loop-13 runtimes copies trainer-static-nccl \
    trainer-hidden-nccl ranges)
test_programs += $(cuda_programs)

test-cuda: setup ## every training on the stand-in CUDA libraries: torch 2.15 with both NCCL backends, 2.9
	@$(MAKE) --no-print-directory all $(test_programs)
	tests/torch_cuda/run_cuda.py
	tests/scenarios/cuda_programs
	tests/scenarios/sim_cuda_torch 2.15.0 2.9.1
.PHONY: test-cuda
