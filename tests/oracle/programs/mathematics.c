/* libm, whose functions come in variants for the processor at hand, and long double arithmetic. */
#include <complex.h>
#include <math.h>

int main(void) {
    double total = 0;
    for (int i = 1; i < 40; i++) {
        volatile double x = i * 0.37;
        total +=
            sin(x) * cos(x) + tan(x / 40) + exp(-x) + log(x) + pow(x, 1.5) + sqrt(x) + atan2(x, 2) + cbrt(x);
        total += fmod(x, 0.7) + sinh(x / 20) + tgamma(1 + x / 20) + erf(x) + hypot(x, 1) + floor(x) + rint(x);
        total += (double)expl((long double)-x) + (double)powf((float)x, 0.5f) + creal(cexp(x * I)) + j0(x);
    }
    volatile double huge = 1e22;
    return isfinite(total) && fabs(sin(huge) + 0.8522008497671888) < 1e-12 ? 0 : 1;
}
