/*
 * test_walk_many.c: batches (unspool_walk_many): the same stacks as one by one, whatever the room, the
 * depth limit and the cache.
 */
#include <stdlib.h>

#include "process.h"

/* More samples than are walked at one time; most have up to MOST frames, some many more. */
enum { SAMPLES = 200, MOST = 12, DEEP = 150, TOTAL = SAMPLES * 2 * MOST };

static struct process p;
static uint64_t registers[SAMPLES][4];
static uint64_t stack_offsets[SAMPLES + 1];
static uint64_t words[TOTAL];

static uint64_t depth(uint64_t i) {
    return i % 27 == 5 ? DEEP - 20 + i / 4 : i % MOST + 1;
}

/* Sample i: depth(i) frames of a function with CFA = sp + 8 (aarch64: a frame of 8 bytes, too), cut
 * by the root, by a bad return address, or by the end of its stack copy: the next one's follows at once. */
static void begin(uint32_t arch) {
    bool is_aarch64 = arch == UNSPOOL_AARCH64;
    uint8_t ra = is_aarch64 ? X30 : RIP;
    begin_process(&p, arch);
    root_function(&p, 0x1000, 0x40);
    function(&p, 0x1100, 0x40, CFI(DEF_CFA_OFFSET(8), OFFSET(ra, 1)));
    compile_process(&p);
    uint64_t word = 0;
    for (uint64_t i = 0; i < SAMPLES; i++) {
        uint64_t frames = depth(i);
        const uint64_t last[] = {CODE_AT + 0x1010, 0x4cd, CODE_AT + 0x1110};
        stack_offsets[i] = 8 * word;
        for (uint64_t k = 0; k < frames; k++)
            words[word++] = k + 1 < frames ? CODE_AT + 0x1110 : last[i % 3];
        registers[i][0] = CODE_AT + 0x1108;
        registers[i][1] = STACK_AT + 0x10000 * i;
        registers[i][2] = 0xf0;
        registers[i][3] = 0xbad;
    }
    stack_offsets[SAMPLES] = 8 * word;
}

static uint32_t expected_end(uint64_t i) {
    static const uint32_t ends[] = {UNSPOOL_END_ROOT, UNSPOOL_END_BAD_RETURN_ADDRESS,
                                    UNSPOOL_END_STACK_BYTES_ENDED};
    return ends[i % 3];
}

struct result {
    uint64_t addresses[TOTAL], offsets[SAMPLES + 1];
    uint8_t how[TOTAL], ends[SAMPLES];
};

static struct unspool_batch batch_into(struct result *result, uint64_t capacity, uint64_t depth_limit) {
    memset(result, 0xee, sizeof *result);
    result->offsets[0] = 0;
    return (struct unspool_batch){
        .count = SAMPLES,
        .registers = registers[0],
        .stack_offsets = stack_offsets,
        .stack_bytes = (const uint8_t *)words,
        .depth_limit = depth_limit,
        .capacity = capacity,
        .addresses = result->addresses,
        .how = result->how,
        .offsets = result->offsets,
        .ends = result->ends,
    };
}

/* What unspool_walk says of each sample. */
static void walk_singly(struct result *result, uint64_t depth_limit) {
    uint32_t arch = p.unwinder.arch;
    memset(result, 0xee, sizeof *result);
    result->offsets[0] = 0;
    for (uint64_t i = 0; i < SAMPLES; i++) {
        uint64_t first = result->offsets[i];
        struct unspool_stack stack = {
            .addresses = result->addresses + first, .how = result->how + first, .capacity = depth_limit};
        p.registers = (struct unspool_registers){0};
        set_register(&p, pc_register(arch), registers[i][0]);
        set_register(&p, sp_register(arch), registers[i][1]);
        set_register(&p, fp_register(arch), registers[i][2]);
        if (arch == UNSPOOL_AARCH64)
            set_register(&p, X30, registers[i][3]);
        p.memory.stack = (struct unspool_region){registers[i][1], stack_offsets[i + 1] - stack_offsets[i],
                                                 (const uint8_t *)words + stack_offsets[i]};
        unspool_walk(&p.unwinder, &p.registers, &p.memory, &stack);
        result->offsets[i + 1] = first + stack.count;
        result->ends[i] = (uint8_t)stack.end;
    }
}

static void expect_same(const struct result *got, const struct result *expected) {
    uint64_t total = expected->offsets[SAMPLES];
    CHECK_BYTES(got->offsets, expected->offsets, sizeof got->offsets);
    CHECK_BYTES(got->ends, expected->ends, sizeof got->ends);
    CHECK_BYTES(got->addresses, expected->addresses, total * sizeof *got->addresses);
    CHECK_BYTES(got->how, expected->how, total);
}

static struct result singly, batched;

static void a_batch_is_what_single_walks_are(void) {
    static struct unspool_cache cache;
    for (uint32_t arch = UNSPOOL_X86_64; arch <= UNSPOOL_AARCH64; arch++) {
        begin(arch);
        walk_singly(&singly, 2 * DEEP);
        for (uint64_t i = 0; i < SAMPLES; i++) {
            CHECK_EQUAL(singly.ends[i], expected_end(i));
            CHECK_EQUAL(singly.offsets[i + 1] - singly.offsets[i], depth(i) + (i % 3 == 1 ? 0 : 1));
        }
        struct unspool_batch batch = batch_into(&batched, TOTAL, 2 * DEEP);
        CHECK_EQUAL(unspool_walk_many(&p.unwinder, &batch, 0), SAMPLES);
        expect_same(&batched, &singly);
        unspool_cache_clear(&cache);
        p.unwinder.cache = &cache;
        for (int warm = 0; warm < 2; warm++) {
            batch = batch_into(&batched, TOTAL, 2 * DEEP);
            CHECK_EQUAL(unspool_walk_many(&p.unwinder, &batch, 0), SAMPLES);
            expect_same(&batched, &singly);
        }
    }
}

static void a_batch_begins_where_the_last_one_ended(void) {
    begin(UNSPOOL_X86_64);
    walk_singly(&singly, 2 * DEEP);
    struct unspool_batch batch = batch_into(&batched, TOTAL, 2 * DEEP);
    for (uint64_t done = 0, count = 1; done < SAMPLES; count += 3) {
        batch.count = done + count < SAMPLES ? done + count : SAMPLES;
        done = unspool_walk_many(&p.unwinder, &batch, done);
        CHECK_EQUAL(done, batch.count);
    }
    expect_same(&batched, &singly);
    batch.count = SAMPLES;
    CHECK_EQUAL(unspool_walk_many(&p.unwinder, &batch, SAMPLES), SAMPLES);
}

/* The room grows only when a sample does not fit; nothing is walked half, lost, or written beyond. */
static void room_that_runs_out(void) {
    begin(UNSPOOL_AARCH64);
    walk_singly(&singly, 2 * DEEP);
    for (uint64_t step = 1; step < 2 * MOST; step += 5) {
        struct unspool_batch batch = batch_into(&batched, 0, 2 * DEEP);
        uint64_t done = 0;
        while (done < SAMPLES && batch.capacity < TOTAL) {
            uint64_t before = batch.capacity < TOTAL ? batched.addresses[batch.capacity] : 0;
            uint64_t next = unspool_walk_many(&p.unwinder, &batch, done);
            CHECK_EQUAL(batched.addresses[batch.capacity], before);
            CHECK(next >= done);
            CHECK(batched.offsets[next] <= batch.capacity);
            done = next;
            if (done < SAMPLES)
                batch.capacity += step;
        }
        CHECK_EQUAL(done, SAMPLES);
        expect_same(&batched, &singly);
    }
}

static void the_depth_limit_is_an_end_of_its_own(void) {
    begin(UNSPOOL_X86_64);
    for (uint64_t limit = 0; limit < MOST + 2; limit++) {
        walk_singly(&singly, limit);
        struct unspool_batch batch = batch_into(&batched, TOTAL, limit);
        CHECK_EQUAL(unspool_walk_many(&p.unwinder, &batch, 0), SAMPLES);
        expect_same(&batched, &singly);
        CHECK_EQUAL(batched.ends[9], limit < 11 ? UNSPOOL_END_DEPTH_LIMIT : UNSPOOL_END_ROOT);
        CHECK_EQUAL(batched.offsets[10] - batched.offsets[9], limit < 11 ? limit : 11);
    }
}

/* One stack of each depth about as large as what is walked in turn, into room that just suffices. */
static void room_that_just_suffices(void) {
    static uint64_t long_stack[DEEP + 1];
    static struct unspool_cache cache;
    begin(UNSPOOL_X86_64);
    unspool_cache_clear(&cache);
    p.unwinder.cache = &cache;
    for (uint64_t depth = 100; depth < DEEP; depth++) {
        for (uint64_t i = 0; i < depth; i++)
            long_stack[i] = CODE_AT + (i + 1 < depth ? 0x1110 : 0x1010);
        const uint64_t offsets[] = {0, 8 * depth};
        for (uint64_t room = depth; room <= depth + 2; room++) {
            uint64_t *addresses = malloc(room * sizeof *addresses), found[2] = {0};
            uint8_t *how = malloc(room), end;
            struct unspool_batch batch = {.count = 1,
                                          .registers = registers[0],
                                          .stack_offsets = offsets,
                                          .stack_bytes = (const uint8_t *)long_stack,
                                          .depth_limit = 2 * DEEP,
                                          .capacity = room,
                                          .addresses = addresses,
                                          .how = how,
                                          .offsets = found,
                                          .ends = &end};
            CHECK_EQUAL(unspool_walk_many(&p.unwinder, &batch, 0), room > depth);
            CHECK(room == depth || (found[1] == depth + 1 && end == UNSPOOL_END_ROOT));
            free(addresses);
            free(how);
        }
    }
}

static void samples_without_stack_bytes(void) {
    begin(UNSPOOL_X86_64);
    for (uint64_t i = 0; i <= SAMPLES; i++)
        stack_offsets[i] = 0;
    struct unspool_batch batch = batch_into(&batched, TOTAL, MOST);
    CHECK_EQUAL(unspool_walk_many(&p.unwinder, &batch, 0), SAMPLES);
    for (uint64_t i = 0; i < SAMPLES; i++) {
        CHECK_EQUAL(batched.offsets[i + 1], i + 1);
        CHECK_EQUAL(batched.ends[i], UNSPOOL_END_UNREADABLE_MEMORY);
    }
}

int main(void) {
    RUN(a_batch_is_what_single_walks_are);
    RUN(a_batch_begins_where_the_last_one_ended);
    RUN(room_that_runs_out);
    RUN(the_depth_limit_is_an_end_of_its_own);
    RUN(room_that_just_suffices);
    RUN(samples_without_stack_bytes);
    end_process(&p);
    return check_result();
}
