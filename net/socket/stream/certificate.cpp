#include "net/socket/stream/certificate.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include <cstring>
#include <ctime>
#include <memory>
#include <new>
#include <vector>

#include "core/base/error.h"
#include "core/base/regular_file.h"
#include "core/base/shown.h"
#include "net/protocol/secret_file.h"

namespace troupe::internal::net {
namespace {

constexpr const char *kChain = "TROUPE_TLS_CERTIFICATE", *kKey = "TROUPE_TLS_KEY",
                     *kAuthorities = "TROUPE_TLS_CA";
constexpr const char* kOneEnd =
    ", which is not for both ends of a link: give it extendedKeyUsage serverAuth,clientAuth, or none";
constexpr size_t kMostBytes = 1 << 20;  // of a file

struct Free {
  void operator()(BIO* p) const { BIO_free(p); }
  void operator()(X509* p) const { X509_free(p); }
  void operator()(EVP_PKEY* p) const { EVP_PKEY_free(p); }
  void operator()(X509_STORE* p) const { X509_STORE_free(p); }
  void operator()(X509_STORE_CTX* p) const { X509_STORE_CTX_free(p); }
  void operator()(GENERAL_NAMES* p) const { GENERAL_NAMES_free(p); }
  void operator()(STACK_OF(X509) * p) const { sk_X509_free(p); }
};
template <class T>
using Owned = std::unique_ptr<T, Free>;

template <class T>
Owned<T> owned(T* p) {
  if (!p) throw std::bad_alloc();
  return Owned<T>(p);
}

int no_password(char*, int, int, void*) { return 0; }

Owned<BIO> bytes_of(const std::string& pem) {
  return owned(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
}

// `what`: of the variable, for errors.
std::vector<Owned<X509>> certificates_in(const std::string& pem, const std::string& what) {
  std::vector<Owned<X509>> found;
  const auto bytes = bytes_of(pem);
  ERR_clear_error();
  while (X509* next = PEM_read_bio_X509(bytes.get(), nullptr, no_password, nullptr)) found.emplace_back(next);
  const auto error = ERR_peek_last_error();
  ERR_clear_error();
  if (found.empty() || ERR_GET_REASON(error) != PEM_R_NO_START_LINE)
    throw_invalid(what + " holds no certificate in PEM form (-----BEGIN CERTIFICATE-----), or a damaged one");
  return found;
}

Owned<EVP_PKEY> key_in(const std::string& pem, const std::string& what) {
  const auto bytes = bytes_of(pem);
  Owned<EVP_PKEY> key(PEM_read_bio_PrivateKey(bytes.get(), nullptr, no_password, nullptr));
  ERR_clear_error();
  if (!key)
    throw_invalid(what +
                  " holds no private key in PEM form (-----BEGIN PRIVATE KEY-----), or one with a password");
  return key;
}

Owned<X509_STORE> store_of(const std::vector<Owned<X509>>& authorities) {
  auto store = owned(X509_STORE_new());
  for (const auto& one : authorities)
    if (X509_STORE_add_cert(store.get(), one.get()) != 1) throw std::bad_alloc();
  return store;
}

std::string content_of(const char* variable, const std::string& path) {
  const std::string where = std::string(variable) + ": ";
  std::string text = read_regular_file(path, where, "certificates (PEM)", kMostBytes);
  if (text.empty()) throw_invalid(where + path + ": is empty");
  return text;
}

std::string time_text(const std::tm& time) {
  return fmt::format("{:04}-{:02}-{:02} {:02}:{:02} UTC", time.tm_year + 1900, time.tm_mon + 1, time.tm_mday,
                     time.tm_hour, time.tm_min);
}
std::string time_text(const ASN1_TIME* time) {
  std::tm parts{};
  return ASN1_TIME_to_tm(time, &parts) == 1 ? time_text(parts) : "an unknown time";
}
std::string now_text() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  return time_text(*::gmtime_r(&now, &parts));
}

// "east, 10.0.0.1"; what an owner calls itself where it names no host.
std::string names_of(X509* certificate) {
  constexpr int kMost = 8;
  const Owned<GENERAL_NAMES> all(
      static_cast<GENERAL_NAMES*>(X509_get_ext_d2i(certificate, NID_subject_alt_name, nullptr, nullptr)));
  std::string names;
  for (int i = 0, n = all ? sk_GENERAL_NAME_num(all.get()) : 0; i < n && i < kMost; ++i) {
    const GENERAL_NAME* name = sk_GENERAL_NAME_value(all.get(), i);
    int type = 0;
    const auto* value = static_cast<const ASN1_STRING*>(GENERAL_NAME_get0_value(name, &type));
    char text[INET6_ADDRSTRLEN] = "";
    if (type != GEN_DNS && type != GEN_IPADD) continue;
    const unsigned char* bytes = ASN1_STRING_get0_data(value);
    const auto size = static_cast<size_t>(ASN1_STRING_length(value));
    if (type == GEN_IPADD && (size == 4 || size == 16))
      (void)::inet_ntop(size == 4 ? AF_INET : AF_INET6, bytes, text, sizeof text);
    names += (names.empty() ? "" : ", ") +
             (*text ? std::string(text) : shown(std::string(reinterpret_cast<const char*>(bytes), size)));
  }
  if (!names.empty()) return names;
  char text[256] = "";
  X509_NAME_get_text_by_NID(X509_get_subject_name(certificate), NID_commonName, text, sizeof text);
  return *text ? shown(std::string(text)) : "nobody";
}

}  // namespace

std::string openssl_reason() {
  const char* text = ERR_reason_error_string(ERR_peek_error());
  return text ? text : "no reason given";
}

std::string refused_certificate(X509_STORE_CTX* check, const std::string& host) {
  // One on the way to an authority may be the bad one.
  X509 *certificate = X509_STORE_CTX_get_current_cert(check), *own = X509_STORE_CTX_get0_cert(check);
  if (!certificate) certificate = own;
  const std::string whose = "the certificate of " + names_of(certificate);
  switch (const int error = X509_STORE_CTX_get_error(check)) {
    case X509_V_ERR_CERT_HAS_EXPIRED:
      return fmt::format(
          "{}, which has expired at {}; this host's clock says {}: renew it, or set the clocks of all hosts "
          "alike",
          whose, time_text(X509_get0_notAfter(certificate)), now_text());
    case X509_V_ERR_CERT_NOT_YET_VALID:
      return fmt::format(
          "{}, which is good from {} on; this host's clock says {}: set the clocks of all hosts alike", whose,
          time_text(X509_get0_notBefore(certificate)), now_text());
    case X509_V_ERR_HOSTNAME_MISMATCH:
    case X509_V_ERR_IP_ADDRESS_MISMATCH:
      return fmt::format(
          "{}, which does not name {}, where it was found: it has to name each name and address of its host "
          "(subjectAltName)",
          whose, host);
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT:
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY:
    case X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE:
    case X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT:
    case X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN:
    case X509_V_ERR_CERT_SIGNATURE_FAILURE:
      return fmt::format(
          "{}, which no authority in {} has signed: give all workers certificates of one authority",
          "the certificate of " + names_of(own), kAuthorities);
    case X509_V_ERR_INVALID_PURPOSE:
      return whose + kOneEnd;
    default:
      return fmt::format("{}, which is not good: {}", whose, X509_verify_cert_error_string(error));
  }
}

Certificate read_certificate(const CertificateFiles& files) {
  Certificate found;
  found.chain = content_of(kChain, files.chain);
  found.authorities = content_of(kAuthorities, files.authorities);
  try {
    found.key = read_secret_file(files.key, "key", kMostBytes);
  } catch (const Error& e) {
    throw_invalid(fmt::format("{}: {}", kKey, e.message()));
  }
  const auto at = [](const char* variable, const std::string& path) {
    return fmt::format("{}: {}", variable, path);
  };
  const auto chain = certificates_in(found.chain, at(kChain, files.chain));
  const auto authorities = certificates_in(found.authorities, at(kAuthorities, files.authorities));
  const auto key = key_in(found.key, at(kKey, files.key));
  if (X509_check_private_key(chain.front().get(), key.get()) != 1)
    throw_invalid(fmt::format("{} is not the key of {}", at(kKey, files.key), at(kChain, files.chain)));
  const auto store = store_of(authorities);
  const auto check = owned(X509_STORE_CTX_new());
  const auto others = owned(sk_X509_new_null());
  for (size_t i = 1; i < chain.size(); ++i)
    if (sk_X509_push(others.get(), chain[i].get()) <= 0) throw std::bad_alloc();
  if (X509_STORE_CTX_init(check.get(), store.get(), chain.front().get(), others.get()) != 1)
    throw std::bad_alloc();
  if (X509_verify_cert(check.get()) != 1)
    throw_invalid(fmt::format("{} is {}", at(kChain, files.chain), refused_certificate(check.get(), "")));
  for (const int purpose : {X509_PURPOSE_SSL_CLIENT, X509_PURPOSE_SSL_SERVER})
    if (X509_check_purpose(chain.front().get(), purpose, 0) != 1)
      throw_invalid(fmt::format("{} is the certificate of {}{}", at(kChain, files.chain),
                                names_of(chain.front().get()), kOneEnd));
  return found;
}

void use_certificate(SSL_CTX* context, const Certificate& certificate) {
  const auto chain = certificates_in(certificate.chain, kChain);
  ERR_clear_error();
  bool used = SSL_CTX_use_certificate(context, chain.front().get()) == 1 &&
              SSL_CTX_use_PrivateKey(context, key_in(certificate.key, kKey).get()) == 1;
  for (size_t i = 1; used && i < chain.size(); ++i)
    used = SSL_CTX_add1_chain_cert(context, chain[i].get()) == 1;
  if (!used) throw_invalid(fmt::format("[net] OpenSSL does not take {}: {}", kChain, openssl_reason()));
  SSL_CTX_set_mode(context, SSL_MODE_NO_AUTO_CHAIN);  // what the file has, not the authority as well
  SSL_CTX_set1_cert_store(context, store_of(certificates_in(certificate.authorities, kAuthorities)).get());
}

}  // namespace troupe::internal::net
