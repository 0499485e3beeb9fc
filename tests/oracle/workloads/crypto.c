/* libcrypto: AES in three modes, SHA-1, SHA-2, SHA-3, ChaCha20-Poly1305, big numbers, an elliptic curve.
 * argv[1]: rounds. */
#include <openssl/bn.h>
#include <openssl/ec.h>
#include <openssl/evp.h>
#include <openssl/obj_mac.h>
#include <stdlib.h>
#include <string.h>

static unsigned char plain[4096], sealed[4200], opened[4200];

static int cipher(const EVP_CIPHER *type) {
    unsigned char key[32] = {1}, iv[16] = {2};
    int size = 0, end = 0, back = 0;
    EVP_CIPHER_CTX *context = EVP_CIPHER_CTX_new();
    int ok = EVP_EncryptInit_ex(context, type, NULL, key, iv) &&
             EVP_EncryptUpdate(context, sealed, &size, plain, sizeof plain) &&
             EVP_EncryptFinal_ex(context, sealed + size, &end);
    EVP_CIPHER_CTX_reset(context);
    ok = ok && EVP_DecryptInit_ex(context, type, NULL, key, iv) &&
         EVP_DecryptUpdate(context, opened, &back, sealed, size + end);
    EVP_CIPHER_CTX_free(context);
    return ok && memcmp(opened, plain, (size_t)back) == 0;
}

static int digest(const EVP_MD *type) {
    unsigned char result[EVP_MAX_MD_SIZE];
    unsigned size = 0;
    return EVP_Digest(plain, sizeof plain, result, &size, type, NULL) && size;
}

static int numbers(void) {
    BN_CTX *context = BN_CTX_new();
    BIGNUM *base = BN_new(), *power = BN_new(), *modulus = BN_new(), *result = BN_new();
    BN_set_word(base, 65537);
    BN_lshift(base, base, 400);
    BN_add_word(base, 12345);
    BN_set_word(power, 0x10001);
    BN_lshift(power, power, 40);
    BN_set_word(modulus, 1);
    BN_lshift(modulus, modulus, 512);
    BN_sub_word(modulus, 569);
    int ok = BN_mod_exp(result, base, power, modulus, context) && BN_mul(base, result, result, context) &&
             BN_div(power, NULL, base, modulus, context) && BN_gcd(power, base, modulus, context);
    BN_free(base);
    BN_free(power);
    BN_free(modulus);
    BN_free(result);
    BN_CTX_free(context);
    return ok;
}

static int curve(void) {
    EC_GROUP *group = EC_GROUP_new_by_curve_name(NID_X9_62_prime256v1);
    EC_POINT *point = EC_POINT_new(group);
    BIGNUM *scalar = BN_new();
    BN_set_word(scalar, 0x123456789abcdefu);
    BN_lshift(scalar, scalar, 180);
    int ok =
        EC_POINT_mul(group, point, scalar, NULL, NULL, NULL) && EC_POINT_is_on_curve(group, point, NULL) == 1;
    BN_free(scalar);
    EC_POINT_free(point);
    EC_GROUP_free(group);
    return ok;
}

int main(int argc, char **argv) {
    int rounds = argc > 1 ? atoi(argv[1]) : 1;
    for (size_t i = 0; i < sizeof plain; i++)
        plain[i] = (unsigned char)(i * 7);
    for (int i = 0; i < rounds; i++) {
        if (!cipher(EVP_aes_256_cbc()) || !cipher(EVP_aes_128_gcm()) || !cipher(EVP_aes_192_ctr()) ||
            !cipher(EVP_chacha20_poly1305()))
            return 1;
        if (!digest(EVP_sha1()) || !digest(EVP_sha256()) || !digest(EVP_sha512()) || !digest(EVP_sha3_256()))
            return 2;
        if (!numbers() || !curve())
            return 3;
    }
    return 0;
}
