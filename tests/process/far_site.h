// Hosts for `troupe run -H` that are this one. A script stands for ssh: it starts the command in a session of
// its own, so that nothing but the lifeline ties it to the launcher.
#pragma once
#include <sys/types.h>

#include <filesystem>
#include <fstream>

#include "tests/process/by_hand.h"

namespace troupe::testing {

struct FarSite {
  Folder folder;
  std::string rsh;
  // `chatter`: what the remote shell does before the command. Each host leaves its command line behind, and
  // the numbers of its agent and of what stands for ssh.
  explicit FarSite(const std::string& chatter = "") : rsh((folder.path / "rsh").string()) {
    const std::string at = folder.path.string() + "/$host";
    std::ofstream(rsh) << "#!/bin/sh\nhost=$1; shift\necho \"$*\" >" << at << ".command\necho $$ >" << at
                       << ".rsh\n"
                       << chatter << "\nexec 3<&0\nsetsid sh -c \"$*\" <&3 3<&- &\necho $! >" << at
                       << ".pid\nwait $!\n";
    std::filesystem::permissions(rsh, std::filesystem::perms::owner_all);
  }
  std::vector<std::string> flags(const std::string& hosts = "east:2,west:1") const {
    return {"-H",
            hosts,
            "--rsh",
            rsh,
            "--master-addr",
            "127.0.0.1",
            "--master-port",
            std::to_string(free_port())};
  }
  Launcher shell(const std::string& script, const std::vector<std::string>& more = {},
                 const std::vector<std::string>& environment = {}) const {
    auto all = flags();
    all.insert(all.end(), more.begin(), more.end());
    all.insert(all.end(), {"/bin/sh", "-c", script});
    return Launcher(all, environment);
  }
  pid_t agent(const std::string& host) const { return number(host + ".pid"); }
  pid_t ssh(const std::string& host) const { return number(host + ".rsh"); }

 private:
  pid_t number(const std::string& file) const { return std::stoi(content(folder.path / file)); }
};

}  // namespace troupe::testing
