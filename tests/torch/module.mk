# Real PyTorch: the scenarios of tests/torch on several versions, and a demonstration. `make test` runs
# the quick part of them (tests/run). TORCH_VERSIONS: what test-torch-versions adds.

TORCH          ?= 2.15.0
TORCH_VERSIONS ?= 2.2.2 2.6.0 2.9.1
DEMO_TORCH_DIR ?= build/demo-torch

test-torch: setup ## every PyTorch scenario, on torch 2.15 and on Debian's 1.13
	@$(MAKE) --no-print-directory all
	tests/torch/run_torch.py --torch $(TORCH) --torch debian

test-torch-versions: setup ## the quick PyTorch scenarios on the versions in between
	@$(MAKE) --no-print-directory all
	tests/torch/run_torch.py --quick $(TORCH_VERSIONS:%=--torch %)

demo-torch: setup ## a DDP training on four ranks, rank 2 with slow input, and what laggard says
	@$(MAKE) --no-print-directory all
	@tests/torch/demo $(TORCH) $(DEMO_TORCH_DIR)
