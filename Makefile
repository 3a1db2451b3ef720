# laggard: build, test, install. `make help` lists the targets.
#
# Everything that is built lands in build/. Each directory is compiled as a whole (wildcards): a new
# source file needs no line here. tests/*/module.mk add what needs rules of its own.

PREFIX  ?= /usr/local
DESTDIR ?=
VERSION := 0.1.0

CC       ?= gcc
CPPFLAGS += -D_GNU_SOURCE -DLAGGARD_VERSION='"$(VERSION)"' -I. -Ibuild/gen
WARN     := -Wall -Wextra -Wpedantic -Werror -Wshadow -Wstrict-prototypes -Wmissing-prototypes
OPT      ?= -O2 -g
CFLAGS   += -std=gnu11 $(OPT) $(WARN)
DEPFLAGS  = -MMD -MP

# The library runs inside other people's processes: hidden symbols, no TLS calls, exceptions may pass,
# C++ members are interposed and must lie at even addresses.
PRELOAD_CFLAGS := -fPIC -fvisibility=hidden -ftls-model=initial-exec -fexceptions \
                  -falign-functions=16 -fno-stack-protector -fno-plt
# libgcc's outlined atomics bring a constructor and a reference that not every libc has
PRELOAD_CFLAGS_aarch64 := -mno-outline-atomics
PRELOAD_CFLAGS += $(PRELOAD_CFLAGS_$(firstword $(subst -, ,$(shell $(CC) -dumpmachine))))
PRELOAD_LDFLAGS := -shared -nostdlib -Wl,-z,defs -Wl,-z,relro -Wl,-z,now -Wl,-z,initfirst \
                   -Wl,-soname,liblaggard.so -Wl,--version-script=build/gen/exports.map
PRELOAD_LIBS := -lc -lgcc

LIBS        ?= -lsqlite3 -ljansson
CMOCKA_LIBS ?= -lcmocka

preload_c    := $(wildcard preload/*.c)
preload_o    := $(preload_c:%.c=build/%.o)
aggregator_c := $(wildcard aggregator/*.c)
aggregator_o := $(aggregator_c:%.c=build/%.o)
# all of the aggregator but main(), for unit tests
aggregator_lib_o := $(filter-out build/aggregator/main.o,$(aggregator_o))
sql_headers  := $(patsubst schema/%.sql,build/gen/%.sql.h,$(wildcard schema/*.sql))
unit_c       := $(wildcard tests/unit/test_*.c)
unit_bin     := $(unit_c:tests/unit/%.c=build/tests/%)

# `make V=1` shows the commands
Q := $(if $(V),,@)
say = @echo "  $(1)	$@"

.PHONY: all demo demo-torch test test-torch test-torch-versions conformance bench install format lint \
        help clean setup
.DEFAULT_GOAL := all

all: build/laggard build/liblaggard.so ## the program and the library

# the rule of `demo` and of every other target that is more than a compilation lives with its tests
-include tests/sim/module.mk tests/trainer/module.mk tests/torch/module.mk tests/scenarios/module.mk \
         tests/victims/module.mk tools/module.mk
-include tests/sim/cuda/module.mk tests/torch_cuda/module.mk tests/hidden/module.mk \
         tests/fuzz/module.mk tests/sanitize/module.mk tests/frameworks/module.mk

build/liblaggard.so: $(preload_o) build/gen/exports.map
	$(call say,LD)
	$(Q)$(CC) $(PRELOAD_LDFLAGS) -o $@ $(preload_o) $(PRELOAD_LIBS)

build/gen/exports.map: preload/hooks.def tools/exports | build/gen
	$(call say,GEN)
	$(Q)tools/exports $< > $@.tmp && mv $@.tmp $@

build/laggard: $(aggregator_o)
	$(call say,LD)
	$(Q)$(CC) $(LDFLAGS) -o $@ $(aggregator_o) $(LIBS) -lm

build/preload/%.o: preload/%.c
	@mkdir -p $(@D)
	$(call say,CC)
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS) $(PRELOAD_CFLAGS) $(DEPFLAGS) -c -o $@ $<

build/aggregator/%.o: aggregator/%.c $(sql_headers)
	@mkdir -p $(@D)
	$(call say,CC)
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS) $(DEPFLAGS) -c -o $@ $<

# SQL files as C string literals
build/gen/%.sql.h: schema/%.sql tools/embed | build/gen
	$(call say,GEN)
	$(Q)tools/embed $< > $@.tmp && mv $@.tmp $@

# kept: they are needed again at the next build
.SECONDARY: $(sql_headers)

build/gen:
	@mkdir -p $@

# A unit test is one cmocka program; it links the whole aggregator and may include preload sources.
build/tests/test_%: tests/unit/test_%.c $(aggregator_lib_o)
	@mkdir -p $(@D)
	$(call say,CC)
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS) $(DEPFLAGS) -o $@ $< $(aggregator_lib_o) $(CMOCKA_LIBS) $(LIBS) -lm

build/tests/policy-vectors: tests/unit/policy_vectors.c $(aggregator_lib_o)
	@mkdir -p $(@D)
	$(call say,CC)
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS) $(DEPFLAGS) -o $@ $< $(aggregator_lib_o) $(LIBS) -lm

# The step machine alone, fed from standard input (tests/scenarios/machine_reference).
build/tests/machine-replay: tests/unit/machine_replay.c $(wildcard preload/*.[ch] schema/*)
	@mkdir -p $(@D)
	$(call say,CC)
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS) -o $@ $<
test_programs += build/tests/machine-replay

unit-tests: $(unit_bin) ## build the unit tests

test: setup ## build and run every test (PyTorch's too, where it is or can be installed)
	@$(MAKE) --no-print-directory all unit-tests build/tests/policy-vectors $(test_programs)
	@tests/run

test-fast: setup ## unit, conformance and C scenarios only
	@$(MAKE) --no-print-directory all unit-tests build/tests/policy-vectors $(test_programs)
	@tests/run --fast

conformance: setup ## the published policy against the 520 recorded answers
	@$(MAKE) --no-print-directory build/tests/policy-vectors
	build/tests/policy-vectors tests/conformance/*.jsonl

setup: ## install what the build and the tests need, or say how
	@tools/setup

install: all ## install into $(DESTDIR)$(PREFIX)
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/lib/laggard $(DESTDIR)$(PREFIX)/share/man/man1 \
	    $(DESTDIR)$(PREFIX)/share/laggard
	install -m 755 build/laggard $(DESTDIR)$(PREFIX)/bin/laggard
	install -m 755 -s build/liblaggard.so $(DESTDIR)$(PREFIX)/lib/laggard/liblaggard.so
	install -m 644 doc/laggard.1 $(DESTDIR)$(PREFIX)/share/man/man1/laggard.1
	install -m 644 schema/columns.def schema/rank.sql schema/report.schema.json $(DESTDIR)$(PREFIX)/share/laggard

format: ## clang-format over all sources
	clang-format -i $(shell git ls-files '*.c' '*.h')

lint: ## formatting, clang-tidy, cppcheck, shellcheck
	tools/lint

help: ## this list
	@awk -F ':.*## ' '/^[a-z][a-z-]*:.*## /{printf "  %-22s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

clean: ## remove build/
	rm -rf build

-include $(wildcard build/*/*.d build/tests/*.d)
