# The test trainer, and `make demo`: a traced run of it with one slow rank.

trainer_c := $(wildcard tests/trainer/*.c)
trainer_o := $(trainer_c:%.c=build/obj/%.o)

$(trainer_o): build/obj/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(SIM_CPPFLAGS) $(CFLAGS) $(DEPFLAGS) -c -o $@ $<

# the stand-ins are found beside the program, so that it runs from anywhere
build/tests/trainer: $(trainer_o) $(sim_libs)
	@mkdir -p $(@D)
	$(CC) $(LDFLAGS) -o $@ $(trainer_o) $(sim_libs) -Wl,-rpath,'$$ORIGIN/sim' -lpthread -lm

# what the library wrote, for tests of the library alone
build/tests/spool-dump: tests/trainer/tools/spool_dump.c
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) $(CFLAGS) $(DEPFLAGS) -o $@ $<

test_programs += build/tests/trainer build/tests/spool-dump

demo: all build/tests/trainer ## a traced run of four ranks, one of them slow, and its report
	@rm -rf build/demo
	build/laggard run --quiet -o build/demo -- build/tests/trainer --ranks 4 --steps 60 \
	    --fault 2:input:8000
	build/laggard report build/demo

-include $(wildcard build/obj/tests/trainer/*.d)
