# The overhead benchmark: the same program without and with the library's objects in it.
build/tools/bench-bare: tools/bench_calls.c
	@mkdir -p $(@D)
	$(call say,LD)
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS) -o $@ $< -lpthread

build/tools/bench-laggard: tools/bench_calls.c $(preload_o)
	@mkdir -p $(@D)
	$(call say,LD)
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS) -DWITH_LAGGARD -o $@ $< $(filter-out build/preload/unwind.o,$(preload_o)) -lpthread

bench: all build/tools/bench-bare build/tools/bench-laggard ## measure what tracing costs
	@tools/bench
