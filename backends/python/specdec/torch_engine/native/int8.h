// Products in int8. Activations are groups of 16 with one scale each; weights have 128 added.
//
// The sums of a group are integers, which are exact in any order. Groups are added as floats, in
// order.
#ifndef SPECDEC_INT8_H
#define SPECDEC_INT8_H

#include "vectors.h"

// Sixteen activations: values * scale. A group is one vector, so code that computes a vector can
// store it at once. An outlier makes only the fifteen others of its group coarser.
typedef struct {
    int8_t values[LANES];
    float scale;
    int32_t offset;                                  // -128 * sum of values: cancels the added 128
} int8_group;

typedef int8_t bvec __attribute__((vector_size(16)));

ALWAYS_INLINE int32_t sum_whole(ivec v) {
    v += SWAPPED(v, 8);
    v += SWAPPED(v, 4);
    v += SWAPPED(v, 2);
    return v[0] + v[1];
}

// Stores a vector as int8, rounded to the nearest of 255 steps, ties to even.
ALWAYS_INLINE void store_int8(int8_group *to, vec v) {
    const float rounder = 12582912.0f;               // 1.5 * 2^23: adding it rounds to an integer
    float top = largest_lane(larger(v, -v));
    float steps = top > 1e-30f ? 127.0f / top : 0;   // below, 127 / top may overflow
    ivec whole = (ivec)(v * steps + rounder) - (ivec)splat(rounder);
    bvec narrow = __builtin_convertvector(whole, bvec);
    memcpy(to->values, &narrow, sizeof narrow);
    to->scale = top / 127.0f;
    to->offset = -128 * sum_whole(whole);
}

// Returns sum + the four products of `weights` (unsigned bytes) and `x` (signed, the same in all
// lanes).
ALWAYS_INLINE ivec dot_quads(ivec sum, ivec weights, ivec x) {
#if defined(__AVX512VNNI__)
    // With the intrinsic, gcc 12 copies each sum to another register and back.
    __asm__("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(weights), "v"(x));
    return sum;
#elif defined(__AVX2__)
    union {
        ivec whole;
        __m256i half[2];
    } sums = {sum}, bytes = {weights};
    __m256i four = _mm256_set1_epi32(x[0]);          // all lanes of x hold the same four
    for (int n = 0; n < 2; n++) {
#ifdef __AVXVNNI__
        sums.half[n] = _mm256_dpbusd_avx_epi32(sums.half[n], bytes.half[n], four);
#else
        __m256i even = _mm256_and_si256(bytes.half[n], _mm256_set1_epi32(0x00ff00ff));
        __m256i odd = _mm256_srli_epi16(bytes.half[n], 8);
        even = _mm256_madd_epi16(even, _mm256_srai_epi16(_mm256_slli_epi16(four, 8), 8));
        odd = _mm256_madd_epi16(odd, _mm256_srai_epi16(four, 8));
        sums.half[n] = _mm256_add_epi32(sums.half[n], _mm256_add_epi32(even, odd));
#endif
    }
    return sums.whole;
#else
    for (int byte = 0; byte < 4; byte++)
        sum += (weights >> 8 * byte & 0xff) * (x << (24 - 8 * byte) >> 24);
    return sum;
#endif
}

#endif
