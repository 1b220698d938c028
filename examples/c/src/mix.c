/* C code that Gs call; compiled as build.rs says. The header is the compiler's own. */
#include <stdint.h>

static uint64_t rotate(uint64_t word, int by) { return word << by | word >> (64 - by); }

/* Sixteen words of state, all needed in every round. With the loop's own they are more than there
 * are registers: some are on the stack, and all that a preemption loses changes the result. main.rs
 * has the same in Rust. */
uint64_t mix(uint64_t seed, uint64_t rounds)
{
	uint64_t a = seed, b = seed + 1, c = seed + 2, d = seed + 3;
	uint64_t e = seed + 4, f = seed + 5, g = seed + 6, h = seed + 7;
	uint64_t j = seed + 8, k = seed + 9, l = seed + 10, m = seed + 11;
	uint64_t n = seed + 12, o = seed + 13, p = seed + 14, q = seed + 15;

	for (uint64_t i = 0; i < rounds; i++) {
		a += rotate(q, 7) ^ i;
		b ^= a + rotate(g, 10);
		c += rotate(b, 13) ^ i;
		d ^= c + rotate(j, 16);
		e += rotate(d, 19) ^ i;
		f ^= e + rotate(l, 22);
		g += rotate(f, 25) ^ i;
		h ^= g + rotate(n, 28);
		j += rotate(h, 31) ^ i;
		k ^= j + rotate(p, 34);
		l += rotate(k, 37) ^ i;
		m ^= l + rotate(a, 40);
		n += rotate(m, 43) ^ i;
		o ^= n + rotate(c, 46);
		p += rotate(o, 49) ^ i;
		q ^= p + rotate(e, 52);
	}
	return a ^ b ^ c ^ d ^ e ^ f ^ g ^ h ^ j ^ k ^ l ^ m ^ n ^ o ^ p ^ q;
}

/* That many frames of a KiB and more, each touched. Each is read after the call below it, so that
 * the compiler cannot make one frame and a loop of them. */
uint64_t dive(uint64_t frames)
{
	volatile uint8_t frame[1024];

	for (unsigned i = 0; i < sizeof frame; i += 64)
		frame[i] = 1;
	uint64_t below = frames > 1 ? dive(frames - 1) : 0;
	return frame[frames % 16 * 64] + below;
}
