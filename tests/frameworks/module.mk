# Real training loops of transformers, accelerate and Lightning on Gloo (downloads them: not part of
# `make test`).

.PHONY: test-frameworks
test-frameworks: setup ## training loops of transformers, accelerate and Lightning (a quarter of an hour)
	@$(MAKE) --no-print-directory all
	tests/frameworks/run_frameworks.py
