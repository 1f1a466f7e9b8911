// Links by TLS with certificates: who is let in, and what is said of those who are not.
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <sys/stat.h>

#include <ctime>

#include "net/socket/stream/certificate.h"
#include "tests/net/socket_support.h"
#include "tests/support/error_of.h"
#include "tests/support/folder.h"

using namespace troupe;
using namespace troupe::internal::net;
using namespace troupe::internal::net::test;
using Catch::Contains;

namespace {

constexpr long kHour = 3600;

template <class F, class... What>
std::string pem(F write, What... what) {
  BIO* bytes = BIO_new(BIO_s_mem());
  REQUIRE(write(bytes, what...) == 1);
  char* text = nullptr;
  const long size = BIO_get_mem_data(bytes, &text);
  std::string out(text, static_cast<size_t>(size));
  BIO_free(bytes);
  return out;
}

// What a certificate says.
struct Says {
  std::string names = "DNS:localhost,IP:127.0.0.1";
  long from = -kHour, until = kHour;  // seconds from now
  std::string use = "";
};

class Authority {
 public:
  explicit Authority(const char* name = "authority")
      : key_(EVP_EC_gen("P-256")), own_(make(name, key_, {.names = ""})) {}
  ~Authority() { X509_free(own_), EVP_PKEY_free(key_); }
  Authority(const Authority&) = delete;
  Certificate issue(const Says& says = {}) const {
    EVP_PKEY* key = EVP_EC_gen("P-256");
    X509* made = make("worker", key, says);
    const Certificate all{pem(PEM_write_bio_X509, made),
                          pem(PEM_write_bio_PrivateKey, key, nullptr, nullptr, 0, nullptr, nullptr), text()};
    X509_free(made), EVP_PKEY_free(key);
    return all;
  }
  std::string text() const { return pem(PEM_write_bio_X509, own_); }

 private:
  // Signed with key_; by itself while there is no own_.
  X509* make(const char* name, EVP_PKEY* key, const Says& says) const {
    X509* c = X509_new();
    X509_set_version(c, 2);
    ASN1_INTEGER_set(X509_get_serialNumber(c), 1);
    X509_gmtime_adj(X509_getm_notBefore(c), says.from);
    X509_gmtime_adj(X509_getm_notAfter(c), says.until);
    X509_set_pubkey(c, key);
    X509_NAME_add_entry_by_txt(X509_get_subject_name(c), "CN", MBSTRING_ASC,
                               reinterpret_cast<const unsigned char*>(name), -1, -1, 0);
    X509_set_issuer_name(c, X509_get_subject_name(says.names.empty() ? c : own_));
    const auto extend = [c](int what, const std::string& value) {
      if (value.empty()) return;
      X509_EXTENSION* extension = X509V3_EXT_conf_nid(nullptr, nullptr, what, value.c_str());
      REQUIRE(extension);
      X509_add_ext(c, extension, -1);
      X509_EXTENSION_free(extension);
    };
    extend(NID_basic_constraints, says.names.empty() ? "critical,CA:TRUE" : "");
    extend(NID_subject_alt_name, says.names);
    extend(NID_ext_key_usage, says.use);
    REQUIRE(X509_sign(c, key_, EVP_sha256()) > 0);
    return c;
  }
  EVP_PKEY* key_;
  X509* own_;
};

std::unique_ptr<Transport> showing(Events& events, WorkerId id, const Certificate& certificate,
                                   const std::string& token = kToken) {
  SocketOptions options{{id, "w" + std::to_string(id)}, token, {}};
  options.encryption = Encryption::always;
  options.certificate = certificate;
  return make_socket_transport(std::move(options), events);
}

// What a connector and a listener say of a link between them; both empty: it is made.
struct Said {
  std::string by_connector, by_listener;
};
Said said(const Certificate& of_connector, const Certificate& of_listener,
          const std::string& listener_says = "", const std::string& address = "tcp:127.0.0.1:0",
          const std::string& token = kToken) {
  LogCapture lines;
  Recorder left, right;
  const auto connector = showing(left, 1, of_connector), listener = showing(right, 2, of_listener, token);
  const auto point = listener->listen(address);
  const auto connecting = connector->connect(point->address(), true);
  REQUIRE(connecting.wait_for(kForever));
  Said all;
  if (const auto& r = connecting.wait(); r.ok()) {
    r.value()->send(message(7, 100'000));
    right.wait_messages(1);
    return all;
  } else {
    CHECK(r.error().kind() == ErrorKind::invalid);
    all.by_connector = r.error().message();
    CHECK_THAT(all.by_connector, Contains(point->address()));
  }
  lines.wait_for(listener_says);
  CHECK(right.accepted.empty());
  return all;
}

}  // namespace

TEST_CASE("who has certificates of one authority meets by every address that they name") {
  const Authority authority;
  const Certificate mine = authority.issue(),
                    all = authority.issue({.names = "DNS:localhost,DNS:node1,IP:127.0.0.1,IP:::1"});
  CHECK(said(mine, all).by_connector == "");
  CHECK(said(mine, all, "", "tcp:[::1]:0").by_connector == "");
  CHECK(said(mine, all, "", "tcp:localhost:0").by_connector == "");
  // Who connects may be anywhere; a use for both ends is one.
  CHECK(said(authority.issue({.names = "DNS:elsewhere"}), mine).by_connector == "");
  const Certificate both = authority.issue({.use = "serverAuth,clientAuth"});
  CHECK(said(both, both).by_connector == "");
}

TEST_CASE("a certificate that is not good is refused on both ends, naming whose it is and what to do") {
  const Authority authority, other("another authority"), namesake;
  const Certificate good = authority.issue();
  const std::string whose = " shows the certificate of localhost, 127.0.0.1, which ";
  struct Case {
    Says says;
    std::string connector_says, listener_hears;
  };
  for (const Case& c :
       {Case{{.from = -48 * kHour, .until = -5 * kHour}, whose + "has expired at ", "certificate expired"},
        Case{{.from = 5 * kHour, .until = 48 * kHour}, whose + "is good from ", "bad certificate"},
        Case{{.use = "clientAuth"}, whose + "is not for both ends of a link", "unsupported certificate"}}) {
    INFO(c.connector_says);
    const Certificate bad = authority.issue(c.says);
    CHECK_THAT(said(good, bad, "it refused this side's certificate: " + c.listener_hears).by_connector,
               Contains(c.connector_says));
    if (c.says.use.empty())
      CHECK_THAT(said(bad, good, "it" + c.connector_says).by_connector,
                 Contains("refused this side's certificate: " + c.listener_hears));
  }
  CHECK_THAT(
      said(good, authority.issue({.names = "DNS:node2,IP:10.0.0.2"}), "it refused this side's certificate")
          .by_connector,
      Contains("shows the certificate of node2, 10.0.0.2, which does not name 127.0.0.1, where it was "
               "found: it has to name each name and address of its host"));
  const std::string unsigned_here = whose + "no authority in TROUPE_TLS_CA has signed";
  for (const auto& [from, alert] : {std::pair(&other, "unknown CA"), std::pair(&namesake, "decrypt error")}) {
    INFO(alert);
    const std::string heard = "refused this side's certificate: " + std::string(alert);
    CHECK_THAT(said(good, from->issue(), "it " + heard).by_connector, Contains(unsigned_here));
    Certificate stranger = from->issue();
    stranger.authorities = authority.text();  // it believes us
    CHECK_THAT(said(stranger, good, "it" + unsigned_here).by_connector, Contains(heard));
  }
}

TEST_CASE("clocks that are hours apart are told with both times") {
  const Authority authority;
  const auto time_text = [](long from_now) {
    const std::time_t at = std::time(nullptr) + from_now;
    std::tm parts{};
    char text[20];
    std::strftime(text, sizeof text, "%Y-%m-%d %H:", ::gmtime_r(&at, &parts));
    return std::string(text);
  };
  const auto text =
      said(authority.issue(), authority.issue({.from = 5 * kHour, .until = 48 * kHour})).by_connector;
  CHECK_THAT(text, Contains("is good from " + time_text(5 * kHour)) &&
                       Contains("; this host's clock says " + time_text(0)) &&
                       Contains("set the clocks of all hosts alike"));
}

TEST_CASE("one side with a certificate and one with the token's key refuse each other, saying what to set") {
  const Certificate mine = Authority().issue();
  const std::string advice = "TROUPE_TLS_CERTIFICATE, TROUPE_TLS_KEY and TROUPE_TLS_CA, or none of them";
  CHECK_THAT(said({}, mine, "it goes by the token's key, and this side by certificates").by_connector,
             Contains("shows a certificate, and this side goes by the token's key") && Contains(advice));
  CHECK_THAT(said(mine, {}, "it shows a certificate, and this side goes by the token's key").by_connector,
             Contains("goes by the token's key, and this side by certificates") && Contains(advice));
}

TEST_CASE("a certificate does not stand for the token") {
  const Certificate mine = Authority().issue();
  CHECK_THAT(said(mine, mine, "it does not have the cluster token", "tcp:127.0.0.1:0",
                  "some other token, long enough")
                 .by_connector,
             Contains("refused the cluster token"));
}

TEST_CASE("files of a certificate are checked before anything starts, and named with their variable") {
  const Authority authority, other;
  const testing::Folder folder;
  const auto files = [&](const Certificate& c) {
    return CertificateFiles{folder.file("chain.pem", c.chain), folder.file("key.pem", c.key),
                            folder.file("ca.pem", c.authorities)};
  };
  const auto refusal = [&](const CertificateFiles& at) {
    return testing::text_of([&] { (void)read_certificate(at); });
  };
  const Certificate good = authority.issue();
  const auto read = read_certificate(files(good));
  CHECK(read.chain == good.chain);
  CHECK(read.key == good.key);
  CHECK(said(read, read).by_connector == "");

  Certificate mixed = good;
  mixed.key = authority.issue().key;
  CHECK_THAT(refusal(files(mixed)),
             Contains("TROUPE_TLS_KEY: ") && Contains("is not the key of TROUPE_TLS_CERTIFICATE: "));
  mixed = good;
  mixed.authorities = other.text();
  CHECK_THAT(refusal(files(mixed)),
             Contains("TROUPE_TLS_CERTIFICATE: ") &&
                 Contains("is the certificate of localhost, 127.0.0.1, which no authority"));
  CHECK_THAT(refusal(files(authority.issue({.from = -2 * kHour, .until = -kHour}))),
             Contains("which has expired at"));
  CHECK_THAT(refusal(files(authority.issue({.from = kHour, .until = 2 * kHour}))),
             Contains("which is good from"));
  CHECK_THAT(refusal(files(authority.issue({.use = "serverAuth"}))), Contains("is not for both ends"));
  mixed = good;
  mixed.chain = "no certificate";
  CHECK_THAT(refusal(files(mixed)),
             Contains("TROUPE_TLS_CERTIFICATE: ") && Contains("holds no certificate in PEM form"));
  mixed = good;
  mixed.chain.resize(mixed.chain.size() / 2);
  CHECK_THAT(refusal(files(mixed)), Contains("or a damaged one"));
  mixed = good;
  mixed.key = good.chain;
  CHECK_THAT(refusal(files(mixed)),
             Contains("TROUPE_TLS_KEY: ") && Contains("holds no private key in PEM form"));
  mixed = good;
  mixed.authorities = "";
  CHECK_THAT(refusal(files(mixed)), Contains("TROUPE_TLS_CA: ") && Contains("is empty"));

  auto paths = files(good);
  ::chmod(paths.key.c_str(), 0640);
  CHECK_THAT(refusal(paths), Contains("TROUPE_TLS_KEY: ") &&
                                 Contains("mode is 0640, so that other users can get at the key"));
  ::chmod(paths.key.c_str(), 0600);
  paths.authorities = "/no/such";
  CHECK_THAT(refusal(paths), Contains("TROUPE_TLS_CA: /no/such: no such file"));
  paths.authorities = folder.path.string();
  CHECK_THAT(refusal(paths), Contains("is a directory, expected certificates (PEM)"));
  paths.authorities = "/dev/zero";
  CHECK_THAT(refusal(paths), Contains("TROUPE_TLS_CA: /dev/zero: is not a regular file"));
  paths.authorities = (folder.path / "pipe").string();
  REQUIRE(::mkfifo(paths.authorities.c_str(), 0600) == 0);
  CHECK_THAT(refusal(paths), Contains("pipe: is not a regular file"));
}
