/*
 * walk_many.c: many stack copies, and the cache that pays there.
 *
 * Stack copies lie in memory, 100 ns and more away, and each frame says where the next one is. Hence many
 * stacks are walked in turn, an ordinary step each (ordinary_step.h), and what the next step reads is fetched
 * meanwhile. Any other step is taken at once, by walk.c.
 */
#include <assert.h>

#include "cfi_program.h"
#include "ordinary_step.h"

/* No module holds the last address (their ends are exclusive), so an empty entry may say so: it is what
 * a return address of 0 looks up. */
void unspool_cache_clear(struct unspool_cache *cache) {
    for (uint32_t i = 0; i < UNSPOOL_CACHE_ENTRIES; i++) {
        cache->entry[i].address = UINT64_MAX;
        cache->entry[i].rule = 0;
    }
    memset(cache->answer, 0, sizeof cache->answer);
    cache->last.count = cache->last.in_vain = 0;
}

static struct unspool_region stack_copy(const struct unspool_batch *batch, uint64_t sample) {
    return (struct unspool_region){
        .address = batch->registers[4 * sample + 1],
        .size = batch->stack_offsets[sample + 1] - batch->stack_offsets[sample],
        .bytes = batch->stack_bytes + batch->stack_offsets[sample],
    };
}

static void walk_sample(const struct unspool_unwinder *unwinder, const uint64_t *sample,
                        struct unspool_memory *memory, struct unspool_stack *stack) {
    struct unspool_registers registers;
    uint32_t arch = unwinder->arch;
    registers.value[pc_register(arch)] = sample[0];
    registers.value[sp_register(arch)] = sample[1];
    registers.value[fp_register(arch)] = sample[2];
    registers.known = (uint64_t)1 << pc_register(arch) | (uint64_t)1 << sp_register(arch) |
                      (uint64_t)1 << fp_register(arch);
    registers.value[UNSPOOL_AARCH64_LR] = sample[3];
    if (arch == UNSPOOL_AARCH64)
        registers.known |= (uint64_t)1 << UNSPOOL_AARCH64_LR;
    registers.pc_is_return_address = 0;
    unspool_walk(unwinder, &registers, memory, stack);
}

/* ------------------------------------------------------------------ lanes */

/* Enough are walked at one time that a round takes as long as memory does. There are more lanes than that,
 * since samples are handed over in their order, and a deep stack lets others wait. A lane's frames are not a
 * power of two, so that lanes do not displace each other from the processor's caches. */
enum { WALKING = 32, LANES = 64, LANE_FRAMES = 136 };

/* One of the stacks that are walked in turn: two cache lines, of which an ordinary step needs the first and
 * half of the second. */
struct lane {
    _Alignas(64) struct ordinary_frame at;
    struct stack_view view;
    uint64_t *next, *limit; /* of addresses */
    uint64_t *addresses;    /* [LANE_FRAMES] */
    uint8_t *how;           /* [LANE_FRAMES]: INTERRUPTED, then CFI but for steps that are not ordinary */
    uint64_t sample;
    uint8_t end; /* enum unspool_end */
    bool has_ended;
    bool has_other_how;
    bool is_left; /* for walk_sample: it is too long for a lane, needs all registers, or no cache is there */
};
static_assert(sizeof(struct lane) == 128, "two cache lines");

struct lanes {
    const struct unspool_unwinder *unwinder;
    const struct unspool_batch *batch;
    struct unspool_memory memory;
    uint64_t capacity; /* of a lane */
    struct lane lane[LANES];
    uint64_t addresses[LANES][LANE_FRAMES];
    uint8_t how[LANES][LANE_FRAMES];
};

static void begin_lanes(struct lanes *lanes, const struct unspool_unwinder *unwinder,
                        const struct unspool_batch *batch) {
    lanes->unwinder = unwinder;
    lanes->batch = batch;
    lanes->memory.regions = NULL;
    lanes->memory.region_count = 0;
    lanes->memory.pid = 0;
    lanes->memory.code_pid = batch->code_pid;
    lanes->memory.page_size = 0;
    lanes->memory.slots_read = 0;
    lanes->capacity = batch->depth_limit < LANE_FRAMES ? batch->depth_limit : LANE_FRAMES;
    for (int i = 0; i < LANES; i++) {
        lanes->lane[i].addresses = lanes->addresses[i];
        lanes->lane[i].how = lanes->how[i];
        memset(lanes->how[i], UNSPOOL_HOW_CFI, LANE_FRAMES);
        lanes->how[i][0] = UNSPOOL_HOW_INTERRUPTED;
    }
}

static bool end_lane(struct lane *lane, uint64_t count, enum unspool_end end) {
    lane->next = lane->addresses + count;
    lane->end = (uint8_t)end;
    lane->has_ended = true;
    return false;
}

static inline uint64_t lane_count(const struct lane *lane) {
    return (uint64_t)(lane->next - lane->addresses);
}

/* The next step of a frame with this entry is ordinary, and what it reads is on its way. */
static inline bool expect_ordinary_step(uint64_t entry, uint64_t sp, uint64_t fp, struct lane *lane) {
    bool is_ordinary = look_ahead(entry, &lane->view, sp, fp, &lane->at) & (lane->next < lane->limit);
    __builtin_prefetch(lane->at.pc_from);
    __builtin_prefetch(lane->at.fp_from);
    return is_ordinary;
}

/* From the lane's last frame, by steps that are not ordinary, to a frame whose step is. False: the stack has
 * ended. */
static bool walk_to_ordinary_step(struct lanes *lanes, struct lane *lane, struct frame *frame) {
    const struct unspool_unwinder *unwinder = lanes->unwinder;
    const struct code code = {unwinder, &lanes->memory};
    struct step step = {0};
    lanes->memory.stack = stack_copy(lanes->batch, lane->sample);
    for (;;) {
        if (may_be_ordinary(unwinder->arch, &lanes->memory.stack, frame)) {
            uint64_t entry = cached_rule(unwinder->cache, lookup_address(frame));
            if (!entry)
                entry = look_up_entry(&code, frame);
            if (!frame->is_interrupted && ends_stack(entry))
                return end_lane(lane, lane_count(lane), UNSPOOL_END_ROOT);
            if (expect_ordinary_step(entry, frame->sp, frame->fp, lane))
                return true;
        }
        enum step_result result = take_step(&code, frame, &step);
        if (result == STEP_END) {
            struct unspool_stack stack = {.count = lane_count(lane)};
            finish_stack(&code, frame, &step, &stack);
            return end_lane(lane, stack.count, stack.end);
        }
        lane->is_left = result == STEP_NEEDS_REGISTERS || lane->next == lane->limit;
        if (lane->is_left)
            return end_lane(lane, 0, 0);
        lane->how[lane_count(lane)] = step.how;
        lane->has_other_how = true;
        *lane->next++ = frame->pc;
    }
}

/* As walk_to_ordinary_step does. */
static bool begin_lane(struct lanes *lanes, uint64_t sample) {
    const uint64_t *registers = lanes->batch->registers + 4 * sample;
    struct lane *lane = &lanes->lane[sample % LANES];
    lane->sample = sample;
    const struct unspool_region copy = stack_copy(lanes->batch, sample);
    lane->view = view_stack(&copy);
    lane->limit = lane->addresses + lanes->capacity;
    lane->next = lane->addresses;
    lane->has_ended = lane->has_other_how = false;
    lane->is_left = !lanes->unwinder->cache || lanes->capacity == 0;
    if (lane->is_left)
        return end_lane(lane, 0, 0);
    *lane->next++ = registers[0];
    if (lanes->unwinder->arch == UNSPOOL_X86_64 &&
        expect_ordinary_step(cached_rule(lanes->unwinder->cache, registers[0]), registers[1], registers[2],
                             lane))
        return true;
    struct frame frame = {.pc = registers[0],
                          .sp = registers[1],
                          .fp = registers[2],
                          .lr = registers[3],
                          .fp_is_known = true,
                          .is_interrupted = true,
                          .lr_is_live = lanes->unwinder->arch == UNSPOOL_AARCH64};
    return walk_to_ordinary_step(lanes, lane, &frame);
}

/* True when the step after this one is ordinary, too. */
static inline bool step_lane(const struct unspool_cache *cache, uint64_t address_mask, struct lane *lane) {
    uint64_t pc = read_word(lane->at.pc_from) & address_mask, fp = read_word(lane->at.fp_from);
    *lane->next++ = pc;
    return expect_ordinary_step(cached_rule_unguessed(cache, pc - 1), lane->at.cfa, fp, lane);
}

/* After an ordinary step, where the next one is not, or may not be. */
static bool leave_ordinary_steps(struct lanes *lanes, struct lane *lane) {
    uint64_t pc = lane->next[-1];
    if (ends_stack(cached_rule(lanes->unwinder->cache, pc - 1)))
        return end_lane(lane, lane_count(lane), UNSPOOL_END_ROOT);
    struct frame frame = {.pc = pc, .sp = lane->at.sp, .fp = lane->at.fp, .fp_is_known = true};
    return walk_to_ordinary_step(lanes, lane, &frame);
}

/* ------------------------------------------------------------------ results */

/* Copies in pieces of a size that the compiler knows, where all of a lane would fit in. */
static void copy_stack(const struct lane *lane, struct unspool_stack *stack, uint64_t room) {
    enum { PIECE = 8 };
    static_assert(LANE_FRAMES % PIECE == 0, "no piece reaches beyond a lane");
    uint64_t count = lane_count(lane);
    if (room < LANE_FRAMES) {
        memcpy(stack->addresses, lane->addresses, count * sizeof *stack->addresses);
        memcpy(stack->how, lane->how, count);
        return;
    }
    for (uint64_t i = 0; i < count; i += PIECE) {
        memcpy(stack->addresses + i, lane->addresses + i, PIECE * sizeof *stack->addresses);
        memcpy(stack->how + i, lane->how + i, PIECE);
    }
}

/* The sample's stack becomes the batch's next one. False: there is no room. */
static bool hand_over(struct lanes *lanes, uint64_t sample, struct unspool_batch *batch) {
    struct lane *lane = &lanes->lane[sample % LANES];
    uint64_t start = batch->offsets[sample], room = batch->capacity - start;
    struct unspool_stack stack = {
        .addresses = batch->addresses + start,
        .how = batch->how + start,
        .capacity = room < batch->depth_limit ? room : batch->depth_limit,
        .count = lane_count(lane),
        .end = lane->end,
    };
    if (lane->is_left) {
        lanes->memory.stack = stack_copy(batch, sample);
        walk_sample(lanes->unwinder, batch->registers + 4 * sample, &lanes->memory, &stack);
        if (stack.end == UNSPOOL_END_DEPTH_LIMIT && stack.capacity < batch->depth_limit)
            return false; /* the batch's room ended, not the stack */
    } else if (stack.count > room) {
        return false;
    } else {
        copy_stack(lane, &stack, room);
    }
    if (lane->has_other_how)
        memset(lane->how + 1, UNSPOOL_HOW_CFI, LANE_FRAMES - 1);
    batch->offsets[sample + 1] = start + stack.count;
    batch->ends[sample] = (uint8_t)stack.end;
    return true;
}

/* A step of each lane that walks; returns how many of them still do. Without branches, since which ones leave
 * is not to be foreseen. */
static uint64_t step_lanes(struct lanes *lanes, struct lane **walking, uint64_t count) {
    const struct unspool_cache *cache = lanes->unwinder->cache;
    const uint64_t address_mask = strip_pac(lanes->unwinder, UINT64_MAX);
    struct lane *leaving[WALKING + 1];
    uint64_t stay = 0;
    for (uint64_t i = 0; i < count; i++) {
        struct lane *lane = walking[i];
        walking[stay] = leaving[i - stay] = lane;
        stay += step_lane(cache, address_mask, lane);
    }
    uint64_t leave = count - stay;
    for (uint64_t i = 0; i < leave; i++) {
        walking[stay] = leaving[i];
        stay += leave_ordinary_steps(lanes, leaving[i]);
    }
    return stay;
}

uint64_t unspool_walk_many(const struct unspool_unwinder *unwinder, struct unspool_batch *batch,
                           uint64_t first) {
    struct lanes lanes;
    struct lane *walking[WALKING + 1];
    uint64_t count = 0, begun = first, done = first;
    begin_lanes(&lanes, unwinder, batch);
    while (done < batch->count) {
        for (; count < WALKING && begun < batch->count && begun < done + LANES; begun++) {
            walking[count] = &lanes.lane[begun % LANES];
            count += begin_lane(&lanes, begun);
        }
        count = step_lanes(&lanes, walking, count);
        for (; done < begun && lanes.lane[done % LANES].has_ended; done++)
            if (!hand_over(&lanes, done, batch))
                return done;
    }
    return done;
}
