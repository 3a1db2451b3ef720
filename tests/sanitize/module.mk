# The program and its unit tests under sanitizers: address (with undefined) and thread, each in a tree of
# its own, build/sanitize/KIND. The library is not: it must not depend on a run-time library of any kind.
# Its sources are covered where unit tests include them.

sanitize_address := -fsanitize=address,undefined -fno-sanitize-recover=undefined
# gcc's has no fences; the spool's are for another process
sanitize_thread  := -fsanitize=thread $(if $(findstring clang,$(CC)),,-Wno-tsan)

# $(1): kind
define sanitize
build/sanitize/$(1)/%.o: %.c $$(sql_headers)
	@mkdir -p $$(@D)
	$$(call say,CC)
	$$(Q)$$(CC) $$(CPPFLAGS) -std=gnu11 -O1 -g -fno-omit-frame-pointer $$(WARN) $$(sanitize_$(1)) $$(DEPFLAGS) -c -o $$@ $$<

build/sanitize/$(1)/laggard: $$(aggregator_c:%.c=build/sanitize/$(1)/%.o)
	$$(call say,LD)
	$$(Q)$$(CC) $$(sanitize_$(1)) -o $$@ $$^ $$(LIBS) -lm

build/sanitize/$(1)/liblaggard.so: build/liblaggard.so
	@mkdir -p $$(@D)
	$$(Q)cp $$< $$@

build/sanitize/$(1)/test_%: build/sanitize/$(1)/tests/unit/test_%.o $$(aggregator_lib_o:build/%=build/sanitize/$(1)/%)
	$$(call say,LD)
	$$(Q)$$(CC) $$(sanitize_$(1)) -o $$@ $$^ $$(CMOCKA_LIBS) $$(LIBS) -lm

sanitized += build/sanitize/$(1)/laggard build/sanitize/$(1)/liblaggard.so \
             $$(unit_c:tests/unit/%.c=build/sanitize/$(1)/%)
.PRECIOUS: build/sanitize/$(1)/%.o
endef
$(eval $(call sanitize,address))
$(eval $(call sanitize,thread))

sanitized-programs: $(sanitized)

sanitize: sanitized-programs ## unit tests and report, import and sql scenarios under ASan, UBSan and TSan
	@tests/sanitize/check

.PHONY: sanitize sanitized-programs
-include $(wildcard build/sanitize/*/*/*.d build/sanitize/*/*/*/*.d)
