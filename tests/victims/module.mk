# Hostile programs and the fake PyTorch that they train with; the same for aarch64 and for musl where
# a compiler for it is installed. tests/scenarios/guest_* run them.

victims_dir := build/tests/victims
comma := ,
VICTIM_CFLAGS   = -std=gnu11 $(OPT) $(WARN) -fexceptions -D_GNU_SOURCE -I. -Itests/victims
VICTIM_CXXFLAGS = -std=c++17 $(OPT) -Wall -Wextra -Wpedantic -Werror -Wshadow -fPIC
fake_torch_h   := tests/victims/fake_torch.h tests/victims/fake_torch_api.h
victim_sources := tests/victims/victim.c tests/victims/victim.h tests/victims/fake_torch_api.h

# What is built for each machine. $(1): directory, $(2): C compiler, $(3): C++ compiler
define victims
$(1)/torch/libtorch_cpu.so: tests/victims/fake_torch.cpp $$(fake_torch_h)
	@mkdir -p $$(@D)
	$(3) $$(VICTIM_CXXFLAGS) -fsemantic-interposition -shared -Wl,-soname,$$(@F) -o $$@ $$< -lpthread

$(1)/torch/libtorch_python.so: tests/victims/fake_torch_python.cpp $$(fake_torch_h) $(1)/torch/libtorch_cpu.so
	@mkdir -p $$(@D)
	$(3) $$(VICTIM_CXXFLAGS) -shared -Wl,-soname,$$(@F) -o $$@ $$< $(1)/torch/libtorch_cpu.so \
	    -Wl,-rpath,'$$$$ORIGIN'

$(1)/%-victim: tests/victims/%_victim.c $$(victim_sources)
	@mkdir -p $$(@D)
	$(2) $$(VICTIM_CFLAGS) -o $$@ $$< tests/victims/victim.c -ldl -lpthread

$(1)/hook-table: tests/victims/hook_table.c preload/resolve.c $$(wildcard preload/*.h preload/*.def)
	@mkdir -p $$(@D)
	$(2) $$(VICTIM_CFLAGS) -o $$@ $$< preload/resolve.c -ldl

victims_built += $(addprefix $(1)/,torch/libtorch_python.so torch-victim process-victim io-victim \
                   hostile-victim hook-table)
endef

$(eval $(call victims,$(victims_dir),$(CC),$(CXX)))

$(victims_dir)/spool-dump: tests/victims/spool_dump.c $(wildcard schema/*)
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) $(CFLAGS) -o $@ $<
victims_built += $(victims_dir)/spool-dump

$(victims_dir)/odd-allocator.so: tests/victims/odd_allocator.c
	@mkdir -p $(@D)
	$(CC) -std=gnu11 $(OPT) $(WARN) -D_GNU_SOURCE -fno-builtin -fPIC -shared -o $@ $<
victims_built += $(victims_dir)/odd-allocator.so

# Each sanitizer whose run-time is installed.
victim_sanitizer_works = $(shell echo 'int main(void){return 0;}' | \
    $(CC) -fsanitize=$(1) -x c -o /dev/null - 2>/dev/null && echo yes)
define sanitized_victim
ifneq ($(call victim_sanitizer_works,$(1)),)
$(victims_dir)/sanitized-$(1): tests/victims/sanitized.c
	@mkdir -p $$(@D)
	$(CC) -std=gnu11 -O1 -g $(WARN) -D_GNU_SOURCE -fsanitize=$(1) -o $$@ $$<
victims_built += $(victims_dir)/sanitized-$(1)
endif
endef
$(foreach s,address undefined,$(eval $(call sanitized_victim,$(s))))

# The library and its victims for aarch64, run by qemu-aarch64.
AARCH64_CC  := aarch64-linux-gnu-gcc
AARCH64_CXX := aarch64-linux-gnu-g++
aarch64_dir := $(victims_dir)/aarch64
ifneq ($(shell command -v $(AARCH64_CXX) 2>/dev/null),)
$(eval $(call victims,$(aarch64_dir),$(AARCH64_CC),$(AARCH64_CXX)))

aarch64_o := $(preload_c:%.c=$(aarch64_dir)/%.o)
$(aarch64_o): $(aarch64_dir)/%.o: %.c
	@mkdir -p $(@D)
	$(AARCH64_CC) $(CPPFLAGS) $(CFLAGS) $(PRELOAD_CFLAGS) $(PRELOAD_CFLAGS_aarch64) $(DEPFLAGS) -c -o $@ $<

$(aarch64_dir)/liblaggard.so: $(aarch64_o) build/gen/exports.map
	$(AARCH64_CC) $(PRELOAD_LDFLAGS) -o $@ $(aarch64_o) $(PRELOAD_LIBS)
victims_built += $(aarch64_dir)/liblaggard.so
-include $(wildcard $(aarch64_dir)/preload/*.d)
endif

# Programs that our library was not made for: another libc, none at run time, another word size.
FOREIGN_CFLAGS = -std=gnu11 $(OPT) $(WARN) -D_GNU_SOURCE
foreign = $(victims_dir)/foreign-$(1): tests/victims/foreign.c ; \
    @mkdir -p $$(@D) && $(2) $$(FOREIGN_CFLAGS) $(3) -o $$@ $$< -lpthread
ifneq ($(shell command -v musl-gcc 2>/dev/null),)
$(eval $(call foreign,musl,musl-gcc,))
victims_built += $(victims_dir)/foreign-musl
endif
ifneq ($(wildcard /usr/lib/libc.a /usr/lib64/libc.a /usr/lib/*-linux-gnu/libc.a),)
$(eval $(call foreign,static,$(CC),-static))
victims_built += $(victims_dir)/foreign-static
endif
libc32 := $(firstword $(wildcard /lib32/libc.so.6 /usr/lib32/libc.so.6))
ifneq ($(libc32),)
$(victims_dir)/foreign-32: tests/victims/foreign32.c
	@mkdir -p $(@D)
	$(CC) -m32 $(OPT) $(WARN) -fno-builtin -nostdlib -nostartfiles -o $@ $< $(libc32) \
	    -Wl,-dynamic-linker,/lib/ld-linux.so.2
victims_built += $(victims_dir)/foreign-32
endif

# Plug-ins that find their libraries by themselves, and libraries that forward.
loading := $(victims_dir)/loading
loading_part = @mkdir -p $(@D) && $(CC) $(VICTIM_CFLAGS) -fPIC -shared -Wl,-soname,$(@F) $(1) -o $@ $< -ldl
$(loading)/dep/libdep.so: tests/victims/loading.c
	$(call loading_part,-DDEP)
$(loading)/librpath.so: tests/victims/loading.c
	$(call loading_part,-DPLUGIN -Wl$(comma)--disable-new-dtags -Wl$(comma)-rpath$(comma)'$$ORIGIN/dep')
$(loading)/librunpath.so: tests/victims/loading.c
	$(call loading_part,-DPLUGIN -Wl$(comma)--enable-new-dtags -Wl$(comma)-rpath$(comma)'$$ORIGIN/dep')
$(loading)/libforward.so: tests/victims/loading.c
	$(call loading_part,-DFORWARD -Wl$(comma)-rpath$(comma)'$$ORIGIN/dep')
$(loading)/loading-victim: tests/victims/loading.c $(loading)/libforward.so
	@mkdir -p $(@D)
	$(CC) $(VICTIM_CFLAGS) -o $@ $< $(loading)/libforward.so -Wl,-rpath,'$$ORIGIN' -ldl
victims_built += $(addprefix $(loading)/,dep/libdep.so librpath.so librunpath.so libforward.so loading-victim)

test_programs += $(victims_built)

victims: $(victims_built) ## the hostile programs of tests/victims alone
.PHONY: victims guests

guests: all $(test_programs) ## run them all bare and traced: how many programs are harmed?
	@tests/run guest_
