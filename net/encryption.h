// Which links between workers are encrypted, and with which keys.
#pragma once
#include <string>

namespace troupe {

/// By TLS 1.3, with a key that follows from the cluster's token, or with certificates. Unix sockets never
/// are.
enum class Encryption {
  off,
  between_hosts,  ///< TCP links, except those within a host
  always,         ///< all TCP links
};

/// What a worker shows of itself, and whom it believes: texts of PEM. No chain: the token's key is used.
struct Certificate {
  std::string chain;        ///< the worker's own certificate first, then those that lead to an authority
  std::string key;          ///< of the first one
  std::string authorities;  ///< who is believed about others
};

}  // namespace troupe
