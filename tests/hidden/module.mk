# Hidden ranks: real trainings with faults that laggard does not know of. `make test` runs a part of
# them (tests/scenarios/hidden_rank, public_cases). SEED gives another list.

SEED ?= 1

.PHONY: hidden-rank
hidden-rank: setup ## 50 trainings with one slow rank, 32 without, public reports, 128 ranks (half an hour)
	@$(MAKE) --no-print-directory all $(test_programs)
	tests/hidden/hidden_rank.py --seed $(SEED)
	tests/hidden/public_cases.py
	tests/hidden/many_ranks.py
