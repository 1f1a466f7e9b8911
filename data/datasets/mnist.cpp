// Finds the files of MNIST in a folder and checks that they fit together.
#include <algorithm>
#include <filesystem>
#include <optional>

#include "core/base/error.h"
#include "core/base/visible.h"
#include "data/datasets/idx.h"

namespace troupe::datasets {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail(const std::string& what) { throw_invalid("[mnist] " + what); }

struct Files {
  std::string images, labels;
};

// The plain file if there is one, else the gzipped one, else an empty path.
std::string find(const fs::path& dir, const std::string& name) {
  for (const char* ending : {"", ".gz"}) {
    std::error_code ignored;
    if (const fs::path path = dir / (name + ending); fs::exists(path, ignored)) return path.string();
  }
  return {};
}

// Both files of a part ("train", "t10k"), or nothing; one without the other is an error.
std::optional<Files> find_part(const std::string& dir, const std::string& part) {
  const std::string images = part + "-images-idx3-ubyte", labels = part + "-labels-idx1-ubyte";
  Files files{find(dir, images), find(dir, labels)};
  if (files.images.empty() && files.labels.empty()) return std::nullopt;
  if (files.images.empty()) fail("--data " + dir + ": has " + files.labels + " but no " + images + "[.gz]");
  if (files.labels.empty()) fail("--data " + dir + ": has " + files.images + " but no " + labels + "[.gz]");
  return files;
}

void check_dir(const std::string& dir) {
  std::error_code error;
  const auto status = fs::status(dir, error);
  if (dir.empty() || status.type() == fs::file_type::not_found) fail("--data " + dir + ": no such directory");
  if (error) fail("--data " + dir + ": " + error.message());
  if (!fs::is_directory(status)) fail("--data " + dir + ": not a directory");
}

[[noreturn]] void nothing_found(const std::string& dir) {
  std::string near;  // a file of a set with names of its own, as emnist-letters-train-images-idx3-ubyte.gz
  std::error_code ignored;
  for (const auto& file : fs::directory_iterator(dir, ignored)) {
    const std::string name = file.path().filename().string();
    if (name.find("idx") != name.npos && (near.empty() || name < near)) near = name;
  }
  fail("--data " + dir + ": no files found; looked for train-images-idx3-ubyte, train-labels-idx1-ubyte, " +
       "t10k-images-idx3-ubyte and t10k-labels-idx1-ubyte, each plain or with .gz" +
       (near.empty() ? ""
                     : ". There is " + in_quotes(near, 80) +
                           ": give its set these names, or read its files with images() and labels()"));
}

Dataset load(const Files& files) {
  Dataset set{images(files.images), labels(files.labels)};
  if (set.x.size(0) != set.y.size(0))
    fail(files.images + " has " + std::to_string(set.x.size(0)) + " images, but " + files.labels + " has " +
         std::to_string(set.y.size(0)) + " labels");
  if (set.size() == 0) fail(files.images + ": no images in it");
  if (set.x.size(1) == 0) fail(files.images + ": images without pixels");
  const int64_t* label = set.y.data<int64_t>();
  const auto [least, most] = std::minmax_element(label, label + set.size());
  if (*most > 9) {
    const int64_t i = std::find_if(label, most, [](int64_t l) { return l > 9; }) - label;
    fail(files.labels + ": label " + std::to_string(i) + " (byte " + std::to_string(8 + i) + ") is " +
         std::to_string(label[i]) + ", expected 0 to 9. This set has labels from " + std::to_string(*least) +
         " to " + std::to_string(*most) + (*least == 1 && *most == 26 ? ", as the letters of EMNIST" : "") +
         ": read its files with images() and labels()" +
         (*least > 0 ? ", and subtract " + std::to_string(*least) + " from the labels: classes count from 0"
                     : ""));
  }
  return set;
}

}  // namespace

Dataset mnist(const std::string& dir) {
  check_dir(dir);
  if (const auto train = find_part(dir, "train")) return load(*train);
  if (const auto test = find_part(dir, "t10k")) return load(*test);
  nothing_found(dir);
}

Split mnist_split(const std::string& dir) {
  check_dir(dir);
  const auto train = find_part(dir, "train"), test = find_part(dir, "t10k");
  if (!train && !test) nothing_found(dir);
  if (!train) {
    const Dataset all = load(*test);
    const int64_t learn = all.size() * 4 / 5;
    if (learn == 0) fail(test->images + ": one image cannot be split into training and test");
    return {rows(all, 0, learn), rows(all, learn, all.size() - learn)};
  }
  if (!test)
    fail("--data " + dir + ": has " + train->images +
         " to learn from, but no t10k-images-idx3-ubyte[.gz] to test on");
  Split split{load(*train), load(*test)};
  if (split.train.x.size(1) != split.test.x.size(1))
    fail(train->images + " has " + std::to_string(split.train.x.size(1)) + " pixels per image, but " +
         test->images + " has " + std::to_string(split.test.x.size(1)));
  return split;
}

}  // namespace troupe::datasets
