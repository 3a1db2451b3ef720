# Fuzzing with libFuzzer, which comes with clang: one program for each kind of input that somebody else
# wrote. `make fuzz` looks for FUZZ_SECONDS in each; `make fuzz-check`, a step of .ci/run, goes over the
# corpus and some thousand seeded mutations.

FUZZ_SECONDS ?= 60
fuzz_dir   := build/fuzz
fuzz_flags := -g -O1 -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer
fuzz_o     := $(patsubst %.c,$(fuzz_dir)/%.o,$(filter-out aggregator/main.c,$(aggregator_c)))
fuzz_bin   := $(patsubst tests/fuzz/%.c,$(fuzz_dir)/%,$(wildcard tests/fuzz/fuzz_*.c))

$(fuzz_dir)/%.o: %.c $(sql_headers)
	@mkdir -p $(@D)
	$(call say,CC)
	$(Q)clang $(CPPFLAGS) -std=gnu11 $(WARN) $(fuzz_flags) -fsanitize=fuzzer-no-link $(DEPFLAGS) -c -o $@ $<

$(fuzz_dir)/fuzz_%: tests/fuzz/fuzz_%.c $(fuzz_o)
	@mkdir -p $(@D)
	$(call say,LD)
	$(Q)clang $(CPPFLAGS) -std=gnu11 $(WARN) $(fuzz_flags) -fsanitize=fuzzer $(DEPFLAGS) -o $@ $< $(fuzz_o) $(LIBS) -lm

fuzz-programs: $(fuzz_bin)

fuzz: fuzz-programs ## look for crashing inputs, FUZZ_SECONDS (60) in each target
	@tests/fuzz/search $(FUZZ_SECONDS)

fuzz-check: fuzz-programs ## the corpus and some thousand mutations, the same each time
	@tests/fuzz/check

.PHONY: fuzz fuzz-check fuzz-programs
-include $(wildcard $(fuzz_dir)/*.d $(fuzz_dir)/aggregator/*.d)
