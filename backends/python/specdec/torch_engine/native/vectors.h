// Vectors of 16 floats and pairs of bfloat16, for any compiler with GCC's vector types.
#ifndef SPECDEC_VECTORS_H
#define SPECDEC_VECTORS_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#ifdef __AVX2__
#include <immintrin.h>
#endif
#if defined(__AVX2__) && defined(__FMA__) && !defined(__AVX512F__)
#define ONLY_EIGHT_LANES                             // per register
#endif

enum { LANES = 16 };

typedef uint16_t bf16;
typedef float vec __attribute__((vector_size(64)));
typedef int32_t ivec __attribute__((vector_size(64)));
typedef bf16 hvec __attribute__((vector_size(32)));

#define ALWAYS_INLINE static inline __attribute__((always_inline))

// Rounds up to 64 bytes, so that the next part of an allocation is aligned for vectors.
ALWAYS_INLINE size_t rounded(size_t num_bytes) { return (num_bytes + 63) / 64 * 64; }

ALWAYS_INLINE vec load(const float *from) {
    vec v;
    memcpy(&v, from, sizeof v);
    return v;
}

ALWAYS_INLINE void store(float *to, vec v) { memcpy(to, &v, sizeof v); }

// Loads 16 pairs of bfloat16, or 16 times four bytes, that lie side by side.
ALWAYS_INLINE ivec load_bits(const void *from) {
    ivec v;
    memcpy(&v, from, sizeof v);
    return v;
}

// Prefetches what is needed 8 KB later. The processor's own prefetching is too slow if several rows
// are multiplied with each vector (measured on Zen 5: 8 rows take 1.4 times as long as one row
// without this, 1.1 times with it).
ALWAYS_INLINE void prefetch(const void *from) {
    __builtin_prefetch((const char *)from + 8192, 0, 3);
}

// Returns the same pair, or the same four bytes, in every lane.
ALWAYS_INLINE ivec splat_bits(const void *from) {
    int32_t bits;
    memcpy(&bits, from, sizeof bits);
    return bits - (ivec){0};
}

ALWAYS_INLINE vec splat(float x) { return x - (vec){0}; }

// Returns sum + a.even * b.even + a.odd * b.odd in each lane.
ALWAYS_INLINE vec dot_pairs(vec sum, ivec a, ivec b) {
#ifdef __AVX512BF16__
    return (vec)_mm512_dpbf16_ps((__m512)sum, (__m512bh)a, (__m512bh)b);
#else
    sum += (vec)(a << 16) * (vec)(b << 16);
    return sum + (vec)(a & (int32_t)0xffff0000) * (vec)(b & (int32_t)0xffff0000);
#endif
}

// Rounds to the nearest bfloat16, ties to even.
ALWAYS_INLINE hvec to_bf16(vec v) {
    ivec bits = (ivec)v;
    bits += 0x7fff + ((bits >> 16) & 1);
    return __builtin_convertvector((bits >> 16) & 0xffff, hvec);
}

ALWAYS_INLINE void store_bf16(bf16 *to, vec v) {
    hvec narrow = to_bf16(v);
    memcpy(to, &narrow, sizeof narrow);
}

ALWAYS_INLINE vec load_bf16(const bf16 *from) {
    hvec narrow;
    memcpy(&narrow, from, sizeof narrow);
    return (vec)(__builtin_convertvector(narrow, ivec) << 16);
}

ALWAYS_INLINE float sum_lanes(vec v) {
    float sum = 0;
    for (int lane = 0; lane < LANES; lane++) sum += v[lane];
    return sum;
}

ALWAYS_INLINE vec larger(vec a, vec b) {
    ivec first = a > b;
    return (vec)(((ivec)a & first) | ((ivec)b & ~first));
}

ALWAYS_INLINE vec smaller(vec a, vec b) { return -larger(-a, -b); }

// Exchanges each lane with the one `distance` (a power of 2) away.
#define SWAPPED(v, distance)                                                                       \
    __builtin_shufflevector(v, v, 0 ^ distance, 1 ^ distance, 2 ^ distance, 3 ^ distance,          \
                            4 ^ distance, 5 ^ distance, 6 ^ distance, 7 ^ distance, 8 ^ distance,  \
                            9 ^ distance, 10 ^ distance, 11 ^ distance, 12 ^ distance,             \
                            13 ^ distance, 14 ^ distance, 15 ^ distance)

ALWAYS_INLINE float largest_lane(vec v) {
    v = larger(v, SWAPPED(v, 8));
    v = larger(v, SWAPPED(v, 4));
    v = larger(v, SWAPPED(v, 2));
    return larger(v, SWAPPED(v, 1))[0];
}

// Returns e^x to 2 units in the last place; 0 below -87, and e^88 above 88, near the largest float.
// The polynomial is that of Cephes' expf.
ALWAYS_INLINE vec exponential(vec x) {
    const float rounder = 12582912.0f;  // 1.5 * 2^23: adding and subtracting it rounds
    ivec is_tiny = x < -87.0f;
    x = smaller(larger(x, splat(-87.0f)), splat(88.0f));
    vec count = (x * 1.44269504f + rounder) - rounder;
    vec r = x - count * 0.693359375f + count * 2.12194440e-4f;
    vec y = r * 1.9875691500e-4f + 1.3981999507e-3f;
    y = y * r + 8.3334519073e-3f;
    y = y * r + 4.1665795894e-2f;
    y = y * r + 1.6666665459e-1f;
    y = y * r + 5.0000001201e-1f;
    y = y * r * r + r + 1.0f;
    ivec power = (__builtin_convertvector(count, ivec) + 127) << 23;
    return (vec)((ivec)(y * (vec)power) & ~is_tiny);
}

#endif
