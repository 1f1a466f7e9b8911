// Files that appear whole: what killed writers leave, symbolic links, and disks that refuse.
#include "data/formats/file.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <set>

#include "data/streams/source.h"
#include "tests/support/error_of.h"
#include "tests/support/folder.h"

using namespace troupe;
using troupe::testing::content;
using troupe::testing::error_text;
using troupe::testing::Folder;
using troupe::testing::invalid_text;
namespace fs = std::filesystem;

namespace {

std::set<std::string> names_in(const fs::path& dir) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(dir)) names.insert(entry.path().filename());
  return names;
}

void save(const std::string& path, const std::string& text) {
  datasets::AtomicFile file(path, "test");
  file.write(text.data(), text.size());
  file.commit();
}

// Runs `body` in a child process; as waitpid says it ended.
template <class F>
int in_child(F body) {
  const pid_t pid = fork();
  REQUIRE(pid >= 0);
  if (pid == 0) {
    body();
    _exit(0);
  }
  int status = 0;
  REQUIRE(waitpid(pid, &status, 0) == pid);
  return status;
}

bool has_unnamed_files(const Folder& dir) {
  const int fd = open(dir.path.c_str(), O_WRONLY | O_TMPFILE | O_CLOEXEC, 0600);
  if (fd >= 0) close(fd);
  return fd >= 0;
}

}  // namespace

TEST_CASE("a writer that is killed leaves nothing where files may have no name", "[data]") {
  Folder dir;
  const std::string path = dir.path / "model";
  save(path, "old");
  const int status = in_child([&] {
    datasets::AtomicFile file(path, "test");
    file.write("new", 3);
    kill(getpid(), SIGKILL);
  });
  CHECK(WIFSIGNALED(status));
  CHECK(content(path) == "old");
  if (has_unnamed_files(dir)) CHECK(names_in(dir.path) == std::set<std::string>{"model"});
  save(path, "newer");
  CHECK(content(path) == "newer");
  CHECK(names_in(dir.path) == std::set<std::string>{"model"});
}

TEST_CASE("what writers left that are gone is removed by the next one, and that of living ones stays",
          "[data]") {
  Folder dir;
  const std::string path = dir.path / "model";
  dir.file("model.writing-1-0", std::string(1000, 'x'));  // process 1 lives, but holds no lock
  dir.file("model.writing-4000000-3", "half");
  const std::string busy = dir.file("model.writing-4000000-4", "under way");
  dir.file("other.writing-4000000-0", "of another file");
  const int held = open(busy.c_str(), O_WRONLY | O_CLOEXEC);
  REQUIRE(held >= 0);
  REQUIRE(flock(held, LOCK_EX | LOCK_NB) == 0);
  save(path, "new");
  CHECK(names_in(dir.path) ==
        std::set<std::string>{"model", "model.writing-4000000-4", "other.writing-4000000-0"});
  close(held);
  save(path, "newer");
  CHECK(names_in(dir.path) == std::set<std::string>{"model", "other.writing-4000000-0"});
}

TEST_CASE("two writers of one path at once: neither disturbs the other, the last one stays", "[data]") {
  Folder dir;
  const std::string path = dir.path / "model";
  datasets::AtomicFile first(path, "test"), second(path, "test");
  first.write("first", 5), second.write("second", 6);
  second.commit();
  CHECK(content(path) == "second");
  first.commit();
  CHECK(content(path) == "first");
  CHECK(names_in(dir.path) == std::set<std::string>{"model"});
}

TEST_CASE("writing through a symbolic link writes its target, and the link stays", "[data]") {
  Folder dir;
  fs::create_directories(dir.path / "run" / "kept");
  const fs::path target = dir.path / "run" / "kept" / "model", link = dir.path / "latest";
  fs::create_symlink("run/kept/model", link);         // relative, and to a file that is not there yet
  fs::create_symlink(link, dir.path / "run" / "by");  // absolute, and to another link
  save(link, "one");
  CHECK(content(target) == "one");
  save(dir.path / "run" / "by", "two");
  CHECK(content(target) == "two");
  CHECK(fs::is_symlink(link));
  CHECK(fs::is_symlink(dir.path / "run" / "by"));
  CHECK(names_in(dir.path) == std::set<std::string>{"latest", "run"});
  CHECK(names_in(target.parent_path()) == std::set<std::string>{"model"});

  fs::create_symlink("round", dir.path / "round");
  CHECK_THAT(invalid_text([&] { save(dir.path / "round", "x"); }), Catch::Contains("symbolic links"));
  fs::create_symlink("/no/such/folder/x", dir.path / "astray");
  CHECK_THAT(invalid_text([&] { save(dir.path / "astray", "x"); }),
             Catch::Contains("astray: cannot be written: No such file or directory"));
}

TEST_CASE("a name with a NUL, where the system would stop reading it, is refused", "[data]") {
  Folder dir;
  const std::string path = dir.path / "x", more = path + std::string("\0.bak", 5);
  save(path, "old");
  CHECK_THAT(invalid_text([&] { save(more, "new"); }),
             Catch::Contains("x?.bak': byte ") && Catch::Contains("is NUL"));
  CHECK_THAT(invalid_text([&] { datasets::MappedFile::open(more, "test", "a file"); }),
             Catch::Contains("is NUL"));
  CHECK(content(path) == "old");
}

TEST_CASE("a device is not replaced by a file", "[data]") {
  for (const std::string path : {"/dev/null", "/dev/full"}) {
    CHECK_THAT(invalid_text([&] { save(path, "x"); }), Catch::Contains("it is not a regular file"));
    CHECK(fs::is_character_file(path));
  }
}

TEST_CASE("a file above the limit of its size is an error, not the end of the process", "[data]") {
  Folder dir;
  const std::string path = dir.path / "model";
  save(path, "old");
  const int status = in_child([&] {
    signal(SIGXFSZ, SIG_DFL);
    const rlimit limit{1000, 1000};
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0) _exit(1);
    const std::string text = error_text(ErrorKind::failed, [&] { save(path, std::string(5000, 'x')); });
    if (text.find("cannot be written: File too large") == std::string::npos) _exit(2);
    sigset_t pending;
    sigpending(&pending);
    _exit(sigismember(&pending, SIGXFSZ) ? 3 : 7);
  });
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 7);
  CHECK(content(path) == "old");
}

TEST_CASE("more files than a process may have open at first are sources, and a limit that stays is named",
          "[data]") {
  Folder dir;
  std::vector<std::string> files;
  for (int i = 0; i < 300; ++i) files.push_back(dir.file(std::to_string(i), "{}\n"));
  const int status = in_child([&] {
    rlimit limit{};
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_max < 400) _exit(1);
    limit.rlim_cur = 128;
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0) _exit(2);
    if (error_text(ErrorKind::invalid, [&] { datasets::json_lines(files); }) != "no error") _exit(3);
    limit.rlim_max = 128;
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0) _exit(4);
    const std::string text = invalid_text([&] { datasets::json_lines(files); });
    _exit(text.find("Too many open files: this process may have 128 open; raise the limit (ulimit -n)") ==
                  std::string::npos
              ? 5
              : 7);
  });
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 7);
}
