// Which links between workers are encrypted.
#pragma once

namespace troupe {

/// By TLS 1.3, with a key that follows from the cluster's token. Unix sockets never are.
enum class Encryption {
  off,
  between_hosts,  ///< TCP links, except those within a host
  always,         ///< all TCP links
};

}  // namespace troupe
