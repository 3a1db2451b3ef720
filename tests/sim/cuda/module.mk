# Asynchronous stand-ins for the CUDA libraries, for CUDA 12 and 13: objects of all of them (the farm links
# them with stubs generated for one PyTorch), and the runtime and NCCL alone for C programs.
# -Bsymbolic: calls between their own functions must not pass a preloaded tracer.

cudasim     := build/tests/sim-cuda
cudasim_src := tests/sim/cuda
cudasim_h   := $(wildcard $(cudasim_src)/*.h $(cudasim_src)/include/*.h) tests/sim/sim.h

cudasim_cudart   := knobs counters memory stream event capture graph copy launch device ptsz
cudasim_nccl     := nccl_call nccl_comm nccl_data nccl_meet nccl_p2p
cudasim_all      := $(cudasim_cudart) $(cudasim_nccl) cublas cublaslt cuda cupti

CUDASIM_CPPFLAGS := -D_GNU_SOURCE -I$(cudasim_src)/include -I$(cudasim_src) -Itests/sim
CUDASIM_CFLAGS    = $(CFLAGS) -fPIC -fvisibility=hidden
CUDASIM_LDFLAGS  := -shared -Wl,-Bsymbolic -Wl,-z,now -Wl,-z,defs

# $(1): major version, $(2): CUDART_VERSION
define cudasim_version
$(cudasim)/$(1)/%.o: $(cudasim_src)/%.c $(cudasim_h)
	@mkdir -p $$(@D)
	$$(call say,CC)
	$$(Q)$$(CC) $$(CUDASIM_CPPFLAGS) -DCUDART_VERSION=$(2) $$(CUDASIM_CFLAGS) -c -o $$@ $$<

$(cudasim)/$(1)/libcudart.so.$(1): $(cudasim_cudart:%=$(cudasim)/$(1)/%.o)
	$$(call say,GEN)
	$$(Q)printf 'libcudart.so.$(1) { global: cuda*; __cuda*; sim*; local: *; };\n' > $$@.map
	$$(Q)$$(CC) $$(CUDASIM_LDFLAGS) -Wl,-soname,$$(@F) -Wl,--version-script=$$@.map -o $$@ $$^ -lpthread

$(cudasim)/$(1)/libnccl.so.2: $(cudasim_nccl:%=$(cudasim)/$(1)/%.o) $(cudasim)/$(1)/libcudart.so.$(1)
	$$(call say,LD)
	$$(Q)$$(CC) $$(CUDASIM_LDFLAGS) -Wl,-soname,$$(@F) -Wl,-rpath,'$$$$ORIGIN' -o $$@ $$^ -lm

# a second copy of NCCL, as in a process where two frameworks bring one each
$(cudasim)/$(1)/second/libnccl.so.2: $(cudasim)/$(1)/libnccl.so.2
	@mkdir -p $$(@D)
	$$(call say,GEN)
	$$(Q)cp $$< $$@

# NCCL inside the program
$(cudasim)/$(1)/libnccl_static.a: $(cudasim_nccl:%=$(cudasim)/$(1)/%.o)
	$$(call say,AR)
	$$(Q)rm -f $$@ && $$(AR) rcs $$@ $$^

$(cudasim)/$(1)/all: $(cudasim_all:%=$(cudasim)/$(1)/%.o) $(cudasim)/$(1)/libcudart.so.$(1) \
    $(cudasim)/$(1)/libnccl.so.2 $(cudasim)/$(1)/second/libnccl.so.2 $(cudasim)/$(1)/libnccl_static.a
	@touch $$@
endef
$(eval $(call cudasim_version,12,12080))
$(eval $(call cudasim_version,13,13020))

# ---- their own tests, for both versions, and programs that reach NCCL in unusual ways

cudasim_selftest := $(wildcard $(cudasim_src)/selftest/*.c)

# $(1): major version, $(2): CUDART_VERSION
define cudasim_programs
$(cudasim)/$(1)/selftest: $(cudasim_selftest) $(cudasim_src)/selftest/selftest.h $(cudasim_h) \
    $(cudasim)/$(1)/libnccl.so.2
	$$(call say,LD)
	$$(Q)$$(CC) $$(CUDASIM_CPPFLAGS) -DCUDART_VERSION=$(2) $$(CFLAGS) -o $$@ $(cudasim_selftest) \
	    $(cudasim)/$(1)/libnccl.so.2 $(cudasim)/$(1)/libcudart.so.$(1) -Wl,-rpath,'$$$$ORIGIN' -lpthread

$(cudasim)/$(1)/calls: $(cudasim_src)/programs/calls.c $(cudasim_h) $(cudasim)/$(1)/libcudart.so.$(1)
	$$(call say,LD)
	$$(Q)$$(CC) $$(CUDASIM_CPPFLAGS) -DCUDART_VERSION=$(2) $$(CFLAGS) -o $$@ $$< \
	    $(cudasim)/$(1)/libcudart.so.$(1) -Wl,-rpath,'$$$$ORIGIN'

$(cudasim)/$(1)/nccl-user: $(cudasim_src)/programs/nccl-user.c $(cudasim_src)/programs/nccl-user.h \
    $(cudasim)/$(1)/libnccl.so.2 $(cudasim)/$(1)/second/libnccl.so.2 $(cudasim)/$(1)/nccl-plugin.so
	$$(call say,LD)
	$$(Q)$$(CC) $$(CUDASIM_CPPFLAGS) -DCUDART_VERSION=$(2) $$(CFLAGS) -o $$@ $$< \
	    $(cudasim)/$(1)/libnccl.so.2 $(cudasim)/$(1)/libcudart.so.$(1) -Wl,-rpath,'$$$$ORIGIN' -ldl

$(cudasim)/$(1)/nccl-user-static: $(cudasim_src)/programs/nccl-user.c \
    $(cudasim_src)/programs/nccl-user.h $(cudasim)/$(1)/libnccl_static.a
	$$(call say,LD)
	$$(Q)$$(CC) $$(CUDASIM_CPPFLAGS) -DCUDART_VERSION=$(2) $$(CFLAGS) -o $$@ $$< \
	    $(cudasim)/$(1)/libnccl_static.a $(cudasim)/$(1)/libcudart.so.$(1) \
	    -Wl,-rpath,'$$$$ORIGIN' -ldl -lm

$(cudasim)/$(1)/nccl-plugin.so: $(cudasim_src)/programs/nccl-plugin.c \
    $(cudasim_src)/programs/nccl-user.h $(cudasim)/$(1)/libnccl.so.2
	$$(call say,LD)
	$$(Q)$$(CC) $$(CUDASIM_CPPFLAGS) -DCUDART_VERSION=$(2) $$(CFLAGS) -fPIC -shared -o $$@ $$< \
	    $(cudasim)/$(1)/libnccl.so.2 -Wl,-rpath,'$$$$ORIGIN'

$(cudasim)/$(1)/libsimtracer.so: $(cudasim_src)/programs/tracer.c $(cudasim_h)
	@mkdir -p $$(@D)
	$$(call say,LD)
	$$(Q)$$(CC) $$(CUDASIM_CPPFLAGS) -DCUDART_VERSION=$(2) $$(CFLAGS) -fPIC -shared -o $$@ $$< -ldl

test_programs += $(cudasim)/$(1)/all $(addprefix $(cudasim)/$(1)/,selftest calls nccl-user \
    nccl-user-static libsimtracer.so)
endef
$(eval $(call cudasim_programs,12,12080))
$(eval $(call cudasim_programs,13,13020))
