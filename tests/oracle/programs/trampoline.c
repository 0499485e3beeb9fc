/* A nested function called through a pointer: gcc writes its trampoline, code, on the stack. */
#include <stdlib.h>

static int compared;

__attribute__((noinline)) static int sorted_by(int *numbers, int count, int direction) {
    int compare(const void *left, const void *right) { /* reads a variable of its parent */
        compared++;
        return (*(const int *)left - *(const int *)right) * direction;
    }
    qsort(numbers, (size_t)count, sizeof *numbers, compare);
    return numbers[0];
}

int main(void) {
    int numbers[] = {5, 3, 9, 1, 7, 2};
    return sorted_by(numbers, 6, 1) == 1 && sorted_by(numbers, 6, -1) == 9 && compared > 8 ? 0 : 1;
}
