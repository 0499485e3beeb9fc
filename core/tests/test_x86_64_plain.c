/*
 * test_x86_64_plain.c: what x86_64_plain.c and x86_64_quick.c pass over is what x86_64_decode says of it: all
 * opcodes of all maps, with all ModRM bytes.
 */
#include "check.h"
#include "instruction.h"
#include "x86_64_quick.h"

enum { CODE = 20, BAD_LIMIT = 5 };

static uint32_t checked, plain, idle, wrong;

static bool writes_sp(const struct instruction *instruction) {
    for (uint32_t i = 0; i < instruction->effect_count; i++)
        if (instruction->effects[i].to == REGISTER_SP && instruction->effects[i].kind != EFFECT_STORE)
            return true;
    return false;
}

/* Codes that are passed over together, and how many bytes are right: none or these. */
static struct {
    uint8_t bytes[CODE + QUICK_MARGIN];
    size_t size;
} quick_codes[CODE_LANES];
static uint32_t quick_count, quick;

/* What follows each code can't be passed over. */
static void pass_quickly(void) {
    struct code_lane lanes[CODE_LANES];
    for (size_t i = 0; i < CODE_LANES; i++)
        lanes[i] = (struct code_lane){quick_codes[i].bytes, quick_codes[i].bytes + CODE, false};
    x86_64_pass_quickly(lanes);
    for (size_t i = 0; i < CODE_LANES; i++) {
        size_t passed = (size_t)(lanes[i].at - quick_codes[i].bytes);
        quick += passed != 0;
        if (!lanes[i].is_stopped || (passed != 0 && passed != quick_codes[i].size))
            wrong++;
    }
    quick_count = 0;
}

static void check_quickly(const uint8_t *code, size_t size, bool is_plain) {
    memset(quick_codes[quick_count].bytes, 0x06, sizeof quick_codes->bytes); /* no instruction */
    memcpy(quick_codes[quick_count].bytes, code, size);
    quick_codes[quick_count++].size = is_plain ? size : 0;
    if (quick_count == CODE_LANES)
        pass_quickly();
}

static void check_code(const uint8_t code[CODE]) {
    struct instruction instruction;
    x86_64_decode(code, CODE, 0x1000, &instruction);
    size_t size = instruction.length ? instruction.length : 1;
    size_t plain_size = x86_64_plain_bytes(code, size, CODE), idle_size = x86_64_idle_length(code);
    bool is_plain = instruction.length != 0 && !writes_sp(&instruction);
    bool is_idle = instruction.length != 0 && instruction.effect_count == 0 && instruction.flow == FLOW_NEXT;
    check_quickly(code, instruction.length ? size : CODE, is_plain);
    checked++;
    plain += plain_size != 0;
    idle += idle_size != 0;
    if ((!plain_size || (is_plain && plain_size == size)) && (!idle_size || (is_idle && idle_size == size)))
        return;
    if (wrong++ < BAD_LIMIT)
        for (size_t i = 0; i < CODE; i++)
            fprintf(stderr, "%02x%s", code[i], i + 1 < CODE ? " " : "\n");
}

/* Every opcode and ModRM byte behind what code begins with; stack registers by SIB bytes, too. */
static void check_opcodes(const uint8_t *first, size_t size, unsigned modrm_step) {
    static const uint8_t sib[] = {0x24, 0x25, 0x1b};
    uint8_t code[CODE] = {0};
    memcpy(code, first, size);
    for (unsigned opcode = 0; opcode < 256; opcode++)
        for (unsigned modrm = 0; modrm < 256; modrm += modrm_step)
            for (size_t i = 0; i < (modrm % 8 == 4 ? sizeof sib : 1); i++) {
                code[size] = (uint8_t)opcode;
                code[size + 1] = (uint8_t)modrm;
                code[size + 2] = sib[i];
                code[size + 3] = (uint8_t)(opcode % 2);
                check_code(code);
            }
}

static void begin(void) {
    checked = plain = idle = wrong = quick_count = quick = 0;
}

static void legacy_instructions(void) {
    static const uint8_t maps[][3] = {{0}, {1, 0x0f}, {2, 0x0f, 0x38}, {2, 0x0f, 0x3a}};
    static const uint8_t prefixes[][4] = {{0},       {1, 0x66},       {1, 0xf2},       {1, 0xf3},
                                          {1, 0x64}, {2, 0x66, 0x2e}, {2, 0x66, 0xf3}, {3, 0x66, 0x66, 0x2e},
                                          {1, 0x67}, {2, 0x48, 0x66}};
    begin();
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++)
        for (unsigned rex = 0x3f; rex < 0x50; rex++) /* 3f: none */
            for (size_t map = 0; map < sizeof maps / sizeof *maps; map++) {
                uint8_t code[CODE];
                size_t size = prefixes[i][0];
                memcpy(code, prefixes[i] + 1, size);
                if (rex >= 0x40)
                    code[size++] = (uint8_t)rex;
                memcpy(code + size, maps[map] + 1, maps[map][0]);
                check_opcodes(code, size + maps[map][0],
                              rex == 0x3f                  ? 1
                              : rex == 0x48 || rex == 0x4d ? 3
                                                           : 11);
            }
    CHECK_EQUAL(wrong, 0);
    CHECK(plain > checked / 2 && idle > checked / 3 && quick > checked / 3);
}

static void vex_instructions(void) {
    begin();
    for (unsigned payload = 0; payload < 256; payload++)
        check_opcodes((const uint8_t[]){0xc5, (uint8_t)payload}, 2, payload % 64 < 4 ? 3 : 11);
    for (unsigned first = 0; first < 256; first++)
        for (unsigned second = 0; second < 256; second += first % 32 < 4 ? 51 : 255)
            check_opcodes((const uint8_t[]){0xc4, (uint8_t)first, (uint8_t)second}, 3, 11);
    CHECK_EQUAL(wrong, 0);
    CHECK(plain > checked / 20 && idle > checked / 20 && quick > checked / 30);
}

static void evex_instructions(void) {
    begin();
    for (unsigned first = 0; first < 256; first++)
        for (unsigned second = 0; second < 256; second += first % 16 < 4 ? 51 : 255)
            check_opcodes((const uint8_t[]){0x62, (uint8_t)first, (uint8_t)second, (uint8_t)(first ^ second)},
                          4, 11);
    CHECK_EQUAL(wrong, 0);
    CHECK(plain > checked / 20 && idle > checked / 20 && quick > checked / 30);
}

/* What is frequent is not left to the decoder. */
static void frequent_instructions_are_plain(void) {
    static const struct {
        uint8_t size, bytes[9];
    } codes[] = {
        {1, {0xc3}},                                     /* ret */
        {4, {0xf3, 0x0f, 0x1e, 0xfa}},                   /* endbr64 */
        {3, {0x48, 0x89, 0xf8}},                         /* mov %rdi, %rax */
        {5, {0xb8, 1, 2, 3, 4}},                         /* mov $, %eax */
        {7, {0x48, 0x8d, 0x05, 1, 2, 3, 4}},             /* lea (%rip), %rax */
        {5, {0xe8, 1, 2, 3, 4}},                         /* call */
        {6, {0xff, 0x25, 1, 2, 3, 4}},                   /* jmp *(%rip) */
        {9, {0x66, 0x0f, 0x1f, 0x84, 0x00, 0, 0, 0, 0}}, /* nop */
        {5, {0xc5, 0xfe, 0x6f, 0x46, 0xe0}},             /* vmovdqu (%rsi), %ymm0 */
        {5, {0xc4, 0xe2, 0x7d, 0x78, 0xc0}},             /* vpbroadcastb %xmm0, %ymm0 */
        {7, {0x62, 0xe1, 0xfe, 0x28, 0x6f, 0x46, 0x01}}, /* vmovdqu64 (%rsi), %ymm16 */
        {3, {0xc5, 0xf8, 0x77}},                         /* vzeroupper */
        {5, {0xc4, 0xe2, 0xf1, 0xf7, 0xc0}},             /* shlx %rcx, %rax, %rax */
    };
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
        uint8_t code[CODE] = {0};
        memcpy(code, codes[i].bytes, codes[i].size);
        CHECK_EQUAL(x86_64_plain_bytes(code, codes[i].size, CODE), codes[i].size);
        quick = quick_count = 0;
        for (size_t lane = 0; lane < CODE_LANES; lane++)
            check_quickly(code, codes[i].size, true);
        CHECK_EQUAL(quick, CODE_LANES);
    }
}

static void whole_instructions_are_passed_over(void) {
    static const uint8_t code[CODE] = {0x89, 0xc0, 0x48, 0x89, 0xc1, 0x54, 0x90}; /* mov, mov, push %rsp */
    CHECK_EQUAL(x86_64_plain_bytes(code, CODE, CODE), 5);
    CHECK_EQUAL(x86_64_plain_bytes(code, 4, CODE), 2);
    CHECK_EQUAL(x86_64_plain_bytes(code, 1, CODE), 0);
    CHECK_EQUAL(x86_64_plain_bytes(code, 0, CODE), 0);
    CHECK_EQUAL(x86_64_plain_bytes(code, 5, 16), 2); /* what follows has less than X86_64_LONGEST bytes */
    CHECK_EQUAL(x86_64_plain_bytes(code, 5, 14), 0);
}

/* Each lane is passed over to its end, or to what stops it. */
static void lanes_stop_or_end(void) {
    uint8_t code[CODE_LANES][1024 + QUICK_MARGIN];
    struct code_lane lanes[CODE_LANES];
    memset(code, 0x90, sizeof code);
    for (size_t i = 0; i < CODE_LANES; i++)
        lanes[i] = (struct code_lane){code[i], code[i] + 100 + 100 * i, false};
    x86_64_pass_quickly(lanes);
    CHECK(lanes[0].at >= lanes[0].end && !lanes[0].is_stopped);
    for (size_t i = 1; i < CODE_LANES; i++)
        CHECK(lanes[i].at - code[i] == lanes[0].at - code[0] && lanes[i].at < lanes[i].end);
    code[3][320] = 0x54; /* push %rsp */
    for (size_t i = 0; i < CODE_LANES; i++)
        lanes[i].end = code[i] + 1024;
    x86_64_pass_quickly(lanes);
    CHECK(lanes[3].is_stopped && lanes[3].at == code[3] + 320);
}

int main(void) {
    RUN(legacy_instructions);
    RUN(vex_instructions);
    RUN(evex_instructions);
    RUN(frequent_instructions_are_plain);
    RUN(whole_instructions_are_passed_over);
    RUN(lanes_stop_or_end);
    return check_result();
}
