// The hosts of a job, as -H and --hostfile name them.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace troupe::tools {

inline constexpr int64_t kMostProcesses = 1024;  ///< of one host

struct Host {
  std::string name;       ///< as the remote shell takes it: "node1", "user@10.0.0.2", "fd00::2"
  int64_t processes = 0;  ///< 0: as many as -n says

  /// Without "user@".
  std::string address() const { return name.substr(name.find('@') + 1); }
};

/// "a:4,b:4", "a,[fd00::2]:2". Throws `invalid` for what is no host, and for one that is there twice.
std::vector<Host> parse_hosts(const std::string& list);
/// Lines as those of Open MPI ("a slots=4") and of MPICH ("a:4"), with comments behind '#'. Throws `invalid`
/// with the line's number.
std::vector<Host> read_hostfile(const std::string& path);

/// Whether that name means this machine to everybody on it: "localhost", its host name, an address of one of
/// its interfaces. Names are not looked up.
bool is_this_host(const Host& host);

}  // namespace troupe::tools
