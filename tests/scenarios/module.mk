# Simulated trainings with a known truth: `make test` runs a part of the sweep through
# tests/scenarios/attribution_sim, `make attribution-full` all of it.

build/tests/attribution-sim: tests/scenarios/attribution_sim.c $(aggregator_lib_o)
	@mkdir -p $(@D)
	$(call say,CC)
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS) $(DEPFLAGS) -o $@ $< $(aggregator_lib_o) $(LIBS) -lm

test_programs += build/tests/attribution-sim

.PHONY: attribution-full
attribution-full: build/tests/attribution-sim ## the whole sweep of simulated trainings (minutes)
	tests/scenarios/attribution_sim --full

.PHONY: kill-test
kill-test: all $(test_programs) ## SIGKILL at 100 random moments (minutes; SEED=N)
	tests/scenarios/trainer_kill --moments 100 $(SEED)
