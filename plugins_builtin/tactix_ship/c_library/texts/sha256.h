/* SHA-256, as FIPS 180-4 defines it. */

static const uint32_t sha256_constants[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

static uint32_t sha256_turned(uint32_t x, int bits) {
    return x >> bits | x << (32 - bits);
}

/* One block of 64 bytes into the eight words of the hash. */
static void sha256_block(uint32_t hash[8], const uint8_t *block) {
    uint32_t w[64], v[8];
    for (int i = 0; i < 16; i++)
        w[i] = (uint32_t)block[4 * i] << 24 | (uint32_t)block[4 * i + 1] << 16 | (uint32_t)block[4 * i + 2] << 8 |
               block[4 * i + 3];
    for (int i = 16; i < 64; i++) {
        const uint32_t a = w[i - 15], b = w[i - 2];
        const uint32_t low = sha256_turned(a, 7) ^ sha256_turned(a, 18) ^ a >> 3;
        const uint32_t high = sha256_turned(b, 17) ^ sha256_turned(b, 19) ^ b >> 10;
        w[i] = w[i - 16] + low + w[i - 7] + high;
    }
    memcpy(v, hash, sizeof v);
    for (int i = 0; i < 64; i++) {
        const uint32_t a = v[0], e = v[4];
        const uint32_t some = (e & v[5]) ^ (~e & v[6]), most = (a & v[1]) ^ (a & v[2]) ^ (v[1] & v[2]);
        const uint32_t first = v[7] + (sha256_turned(e, 6) ^ sha256_turned(e, 11) ^ sha256_turned(e, 25)) + some +
                               sha256_constants[i] + w[i];
        const uint32_t second = (sha256_turned(a, 2) ^ sha256_turned(a, 13) ^ sha256_turned(a, 22)) + most;
        memmove(v + 1, v, 7 * sizeof *v);
        v[4] += first;
        v[0] = first + second;
    }
    for (int i = 0; i < 8; i++)
        hash[i] += v[i];
}

static void sha256(const char *content, size_t bytes, uint8_t digest[32]) {
    uint32_t hash[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                        0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    uint8_t last[128] = {0};
    const size_t whole = bytes / 64 * 64, rest = bytes - whole, room = rest < 56 ? 64 : 128;
    for (size_t at = 0; at < whole; at += 64)
        sha256_block(hash, (const uint8_t *)content + at);
    memcpy(last, content + whole, rest);
    last[rest] = 0x80;
    for (int i = 0; i < 8; i++)
        last[room - 1 - i] = (uint8_t)((uint64_t)bytes * 8 >> 8 * i);
    for (size_t at = 0; at < room; at += 64)
        sha256_block(hash, last + at);
    for (int i = 0; i < 32; i++)
        digest[i] = (uint8_t)(hash[i / 4] >> (24 - 8 * (i % 4)));
}
