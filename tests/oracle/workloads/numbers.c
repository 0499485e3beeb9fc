/* libm in double, float and long double; numbers to text and back; sorting and searching. argv[1]: rounds. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int by_value(const void *a, const void *b) {
    double left = *(const double *)a, right = *(const double *)b;
    return (left > right) - (left < right);
}

static double functions(double x) {
    double sum = sin(x) + cos(x * 1e3) + tan(x) + atan2(x, 2) + exp(-x) + log1p(x) + pow(x, 1.7) + cbrt(x);
    sum += tgamma(1 + x / 50) + lgamma(x) + erf(x) + j0(x) + hypot(x, 3) + fmod(x, 0.7) + sinh(x / 9);
    sum += (double)(sinf((float)x) + expf((float)x / 20) + powf((float)x, 0.3f));
    sum += (double)(sinl((long double)x) + expl((long double)x / 20) + sqrtl((long double)x));
    return sum + sin(x * 1e22) + ldexp(x, 3) + (double)lround(x);
}

int main(int argc, char **argv) {
    int rounds = argc > 1 ? atoi(argv[1]) : 10;
    double *values = malloc(sizeof *values * (size_t)rounds);
    char text[64];
    for (int i = 0; i < rounds; i++) {
        values[i] = functions(0.37 + (i * 7919 % 997) / 31.0);
        snprintf(text, sizeof text, "%.17g", values[i]);
        if (strtod(text, NULL) != values[i] && values[i] == values[i])
            return 1;
        snprintf(text, sizeof text, "%La %10.3e %f", (long double)values[i], values[i], values[i] / 7);
    }
    qsort(values, (size_t)rounds, sizeof *values, by_value);
    for (int i = 1; i < rounds; i++)
        if (by_value(&values[i - 1], &values[i]) > 0)
            return 2;
    int found = bsearch(&values[rounds / 2], values, (size_t)rounds, sizeof *values, by_value) != NULL;
    free(values);
    return found ? 0 : 3;
}
