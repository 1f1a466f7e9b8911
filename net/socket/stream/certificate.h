// Certificates of X.509 in place of a key that follows from the token: how they are read, and what is wrong
// with one, in words.
#pragma once
#include <optional>
#include <string>

#include "net/encryption.h"

struct ssl_ctx_st;
struct x509_store_ctx_st;

namespace troupe::internal::net {

/// Paths of PEM files, as three variables of the environment name them.
struct CertificateFiles {
  std::string chain, key, authorities;
};
/// Reads and checks them: the key is readable by its owner only and that of the certificate, which is good
/// today for one of the authorities. Throws `invalid`, naming variable and file.
Certificate read_certificate(const CertificateFiles& files);

/// Links of that context show it, and want another one of the same authorities. Throws `invalid` if it is
/// none.
void use_certificate(ssl_ctx_st* context, const Certificate& certificate);

/// What OpenSSL says of the first error since it was last asked to forget them.
std::string openssl_reason();

/// Why a certificate is refused: "the certificate of east, 10.0.0.1, which has expired at ...". `host`: where
/// it was found, if it has to name that.
std::string refused_certificate(x509_store_ctx_st* check, const std::string& host);

}  // namespace troupe::internal::net
