// Safetensors: what is written comes back, and every way in which a file can lie is refused.
#include "data/formats/safetensors.h"
#include "core/tensor/creation.h"

#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "core/base/generator.h"
#include "data/formats/file.h"
#include "tests/support/error_of.h"
#include "tests/support/folder.h"
#include "tests/support/sanitized.h"

using namespace troupe;
using troupe::testing::content;
using troupe::testing::error_text;
using troupe::testing::Folder;
using troupe::testing::invalid_text;
namespace fs = std::filesystem;

namespace {

std::string file_of(const std::string& header, const std::string& data = "") {
  uint64_t length = header.size();
  std::string out(8, '\0');
  std::memcpy(out.data(), &length, 8);
  return out + header + data;
}
template <class T>
std::string bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}
std::string entry(const std::string& dtype, const std::string& shape, int64_t begin, int64_t end) {
  return R"({"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":[)" + std::to_string(begin) +
         "," + std::to_string(end) + "]}";
}
void has(const std::string& text, const std::string& part) {
  INFO(text);
  CHECK(text.find(part) != std::string::npos);
}
size_t files_in(const Folder& dir) {
  return static_cast<size_t>(std::distance(fs::directory_iterator(dir.path), fs::directory_iterator()));
}

std::map<std::string, Tensor> some_tensors() {
  Tensor flag = zeros({3}, boolean);
  flag.data<bool>()[1] = true;
  return {{"fc.weight", tensor({{1, -2, 3.5f}, {4, 5, NAN}})},
          {"a/\"quoted\" name \u00e9", tensor({1e300, -0.0}, float64)},
          {"ids", tensor({INT64_MIN, 7, INT64_MAX}, int64)},
          {"flag", flag},
          {"scalar", tensor(2.5)},
          {"none", zeros({0, 4})}};
}

}  // namespace

TEST_CASE("tensors come back bit for bit, with their names and the metadata", "[data][safetensors]") {
  Folder dir;
  const std::string path = dir.path / "model.safetensors";
  auto tensors = some_tensors();
  const Tensor view = tensor({{1, 2, 3}, {4, 5, 6}}, float32);
  tensors["view"] = view.alias({3, 2}, {1, 3}, 0);  // columns of `view`
  const std::map<std::string, std::string> metadata{{"step", "12"}, {"note", "a \"b\"\n"}};
  datasets::write_safetensors(path, tensors, metadata);

  const datasets::Safetensors file(path);
  CHECK(file.metadata() == metadata);
  CHECK(file.entries().size() == tensors.size());
  const auto got = file.tensors();
  REQUIRE(got.size() == tensors.size());
  for (const auto& [name, t] : tensors) {
    INFO(name);
    REQUIRE(got.contains(name));
    CHECK(bit_equal(got.at(name), t.contiguous_data()));
  }
  CHECK(got.at("view").to_vector<float>() == std::vector<float>{1, 4, 2, 5, 3, 6});
  CHECK(file.entries()[0].begin % 64 == 0);
  CHECK(files_in(dir) == 1);
}

TEST_CASE("a loaded tensor is the mapping: it outlives the file, and writes stay in memory",
          "[data][safetensors]") {
  Folder dir;
  const std::string path = dir.path / "m";
  datasets::write_safetensors(path, {{"w", tensor({1, 2, 3}, float32)}, {"v", tensor({4}, float32)}});
  const std::string before = content(path);
  Tensor w;
  {
    const datasets::Safetensors file(path);
    w = file.tensor("w");
    CHECK(file.tensor("w").storage().get() == w.storage().get());
    w.fill_(9);
    CHECK(file.tensor("w").to_vector<float>() == std::vector<float>{9, 9, 9});
    CHECK(file.tensor("v").version() == 0);  // versions are counted per tensor
    CHECK(content(path) == before);
  }
  datasets::write_safetensors(path, {{"w", w}});  // over the file that w maps
  fs::remove(path);
  CHECK(w.to_vector<float>() == std::vector<float>{9, 9, 9});
}

TEST_CASE("other integers are widened, elements off their alignment are copied", "[data][safetensors]") {
  Folder dir;
  const std::string header = R"({"b":)" + entry("U8", "[3]", 0, 3) + R"(,"f":)" + entry("F32", "[2]", 3, 11) +
                             R"(,"h":)" + entry("I16", "[1,2]", 11, 15) + R"(,"u":)" +
                             entry("U32", "[1]", 15, 19) + "}  ";
  const datasets::Safetensors file(
      dir.file("f", file_of(header, bytes_of<uint8_t>({1, 2, 255}) + bytes_of<float>({1.5f, -2}) +
                                        bytes_of<int16_t>({-300, 7}) + bytes_of<uint32_t>({4'000'000'000}))));
  CHECK(file.tensor("b").summary() == "uint8 [3]");
  CHECK(file.tensor("b").to_vector<int64_t>() == std::vector<int64_t>{1, 2, 255});
  CHECK(file.tensor("f").to_vector<float>() == std::vector<float>{1.5f, -2});
  CHECK(file.tensor("h").summary() == "int64 [1, 2]");
  CHECK(file.tensor("h").to_vector<int64_t>() == std::vector<int64_t>{-300, 7});
  CHECK(file.tensor("u").to_vector<int64_t>() == std::vector<int64_t>{4'000'000'000});
  const Tensor f = file.tensor("f");
  CHECK(reinterpret_cast<uintptr_t>(f.bytes()) % 4 == 0);
}

TEST_CASE("int32 and uint8 are written and read as they are", "[data][safetensors]") {
  Folder dir;
  const std::string path = dir.path / "m";
  const Tensor i = tensor({-1, 7}, int32), u = tensor({255, 7, 0}, uint8);
  datasets::write_safetensors(path, {{"i", i}, {"u", u}});
  const datasets::Safetensors file(path);
  CHECK(bit_equal(file.tensor("i"), i));
  CHECK(bit_equal(file.tensor("u"), u));
}

TEST_CASE("bfloat16 and float16 are written and read as they are", "[data][safetensors]") {
  Folder dir;
  const std::string path = dir.path / "m";
  const Tensor a = tensor({1.5, -3}, bfloat16), b = tensor({{0.1}, {65504}, {-0.0}}, float16);
  datasets::write_safetensors(path, {{"a", a}, {"b", b}});
  const datasets::Safetensors file(path);
  CHECK(bit_equal(file.tensor("a"), a));
  CHECK(bit_equal(file.tensor("b"), b));
  CHECK(file.tensor("b").storage().get() == file.tensor("b").storage().get());
}

TEST_CASE("what cannot be given says which tensor and why", "[data][safetensors]") {
  Folder dir;
  const datasets::Safetensors file(dir.file("f", file_of(R"({"weight":)" + entry("C64", "[1]", 0, 8) +
                                                             R"(,"ok":)" + entry("BOOL", "[2]", 8, 10) + "}",
                                                         std::string(8, 'x') + std::string("\1\2", 2))));
  has(error_text(ErrorKind::unimplemented, [&] { file.tensor("weight"); }),
      "f: tensor \"weight\" has the dtype C64, which is not read");
  has(invalid_text([&] { file.tensor("ok"); }),
      "tensor \"ok\" is BOOL, but its element 1 is 2, expected 0 or 1");
  has(invalid_text([&] { file.tensor("weigth"); }),
      "no tensor \"weigth\" among its 2; did you mean \"weight\"?");
}

TEST_CASE("a header that does not fit its file is refused", "[data][safetensors]") {
  Folder dir;
  auto text = [&](const std::string& bytes) {
    return invalid_text([&] { datasets::Safetensors file(dir.file("f", bytes)); });
  };
  auto header = [&](const std::string& json, size_t data = 0) {
    return text(file_of(json, std::string(data, 'x')));
  };
  has(text(""), "has 0 bytes");
  has(text("1234567"), "has 7 bytes, expected 8 of header length");
  has(text(std::string(8, '\xff')),
      "declares a header of 18446744073709551615 bytes, expected at most 100000000");
  has(text(std::string("\x01\xe1\xf5\x05\0\0\0\0", 8)), "declares a header of 100000001 bytes");
  has(text(std::string("\x00\xe1\xf5\x05\0\0\0\0{}", 10)), "but has only 2 after byte 8");
  has(header(""), "does not begin with '{'");
  has(header(" {}"), "does not begin with '{' at byte 8");
  has(header("[]"), "does not begin with '{'");
  has(header("{}\n"), "does not end with '}' and spaces");
  has(header(std::string("{}\0{}", 5)), "byte 10 is 0");
  has(header("{}{}"), "no JSON at byte");
  has(header("{\"\xff\":1}"), "no JSON at byte");
  has(header(R"({"a":{"a":)" + std::string(100'000, '[') + "}"), "tensor \"a\" has \"a\", expected dtype");
  has(header("{" + std::string(100'000, '{') + "}"), "no JSON");
  CHECK(header("{}   ") == "no error");
  CHECK(header(R"({"__metadata__":{}})") == "no error");

  has(header(R"({"__metadata__":{"a":1}})"), "__metadata__ \"a\" is the number 1, expected a text");
  has(header(R"({"__metadata__":{"a":"1","a":"2"}})"), "__metadata__ has the name \"a\" twice");
  has(header(R"({"__metadata__":null})"), "__metadata__ is null");
  has(header(R"({"a":[]})"), "tensor \"a\" is a list, expected an object");
  const std::string a = R"("a":)" + entry("F32", "[1]", 0, 4);
  has(header("{" + a + "," + a + "}", 4), "the name \"a\" appears twice");
  has(header("{" + a + R"(,"\u0061":)" + entry("F32", "[1]", 4, 8) + "}", 8), "\"a\" appears twice");
  has(header(R"({"a":{"dtype":"F32","shape":[1]}})", 4), "tensor \"a\" has no \"data_offsets\"");
  has(header(R"({"a":{"dtype":"F32","dtype":"F32"}})", 4), "has \"dtype\" twice");
  has(header(R"({"a":{"dtype":"F33"}})", 4), "unknown dtype \"F33\"");
  has(header(R"({"a":{"dtype":7}})", 4), "dtype is the number 7");
  has(header(R"({"a":{"shape":[-1]}})", 4), "shape holds the number -1");
  has(header(R"({"a":{"shape":[1.5]}})", 4), "shape holds the number 1.5");
  has(header(R"({"a":{"shape":[[1]]}})", 4), "shape holds a list");
  has(header(R"({"a":{"shape":3}})", 4), "expected a list of whole numbers");
  has(header(R"({"a":{"shape":[1,1,1,1,1,1,1,1,1]}})", 4), "has 9 dimensions, expected at most 8");
  has(header(R"({"a":{"data_offsets":[0]}})", 4), "has 1 data_offsets, expected 2");
  has(header(R"({"a":{"data_offsets":[0,18446744073709551615]}})", 4), "too large");
  has(header(R"({"a":{"data_offsets":[0,99999999999999999999]}})", 4), "data_offsets holds the number");
}

TEST_CASE("files of other formats are called by their names", "[data][safetensors]") {
  Folder dir;
  const auto text = [&](const std::string& bytes) {
    return invalid_text([&] { datasets::Safetensors file(dir.file("f", bytes)); });
  };
  const std::string rest(600'000, 'x');
  CHECK_THAT(text("PK\3\4" + rest),
             Catch::Contains("no safetensors file, it is a ZIP archive, as .npz and .pt"));
  CHECK_THAT(text(std::string("\x1f\x8b\x08\0\0\0\0\0", 8) + rest), Catch::Contains("it is gzip data"));
  CHECK_THAT(text("\x80\2}q"), Catch::Contains("it is a Python pickle, which is a program"));
  // The length of a header may be the same bytes.
  const std::string header = R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})";
  const uint64_t length = 0x088b1f;
  CHECK(datasets::Safetensors(dir.file("f", std::string(reinterpret_cast<const char*>(&length), 8) + header +
                                                std::string(length - header.size(), ' ') + "\7"))
            .tensor("a")
            .item() == 7);
}

TEST_CASE("offsets that overlap, leave holes or leave the file are refused", "[data][safetensors]") {
  Folder dir;
  auto two = [&](int64_t b0, int64_t e0, int64_t b1, int64_t e1, size_t data) {
    return invalid_text([&] {
      datasets::Safetensors file(dir.file("f", file_of(R"({"a":)" + entry("F32", "[1]", b0, e0) + R"(,"b":)" +
                                                           entry("F32", "[1]", b1, e1) + "}",
                                                       std::string(data, 'x'))));
    });
  };
  CHECK(two(0, 4, 4, 8, 8) == "no error");
  CHECK(two(4, 8, 0, 4, 8) == "no error");  // in any order in the header
  has(two(0, 4, 0, 4, 4), "tensor \"b\" has data_offsets [0, 4], which overlap the bytes before 4");
  has(two(0, 4, 3, 7, 7), "[3, 7], which overlap");
  has(two(0, 4, 5, 9, 9), "[5, 9], which leave a hole after the bytes before 4");
  has(two(1, 5, 5, 9, 9), "tensor \"a\" has data_offsets [1, 5], which leave a hole");
  has(two(0, 4, 4, 8, 7), "but the file holds only 7 bytes after its header");
  has(two(0, 4, 4, 8, 9), "goes on for 1 bytes after its last tensor");
  has(two(0, 4, 8, 4, 8), "run backwards");
  has(two(0, 4, 4, 9, 9), "but F32 [1] takes 4 bytes");
  auto one = [&](const std::string& dtype, const std::string& shape, int64_t end, size_t data) {
    return invalid_text([&] {
      datasets::Safetensors file(
          dir.file("f", file_of(R"({"a":)" + entry(dtype, shape, 0, end) + "}", std::string(data, 'x'))));
    });
  };
  has(one("F32", "[4294967296,4294967296]", 0, 0), "more bytes than can be counted");
  has(one("F32", "[4294967296,4294967296,0]", 0, 0), "more bytes than can be counted");
  has(one("F64", "[2305843009213693952]", 0, 0), "more bytes than can be counted");
  has(one("F32", "[1099511627776]", 4, 4), "takes 4398046511104 bytes");
  has(one("F4", "[3]", 1, 1), "does not end on a whole byte");
  CHECK(one("F4", "[4]", 2, 2) == "no error");
  CHECK(one("F32", "[0,1099511627776]", 0, 0) == "no error");
}

TEST_CASE("a lying header costs no memory", "[data][safetensors]") {
  Folder dir;
  const size_t before = allocator_stats().in_use;
  const std::string path =
      dir.file("f", file_of(R"({"a":)" + entry("U8", "[1099511627776]", 0, 1099511627776) + "}"));
  has(invalid_text([&] { datasets::Safetensors file(path); }), "the file holds only 0 bytes");
  CHECK(allocator_stats().in_use == before);
}

TEST_CASE("what is no regular file is refused without waiting", "[data][safetensors]") {
  Folder dir;
  auto text = [&](const std::string& path) {
    return invalid_text([&] { datasets::Safetensors file(path); });
  };
  has(text(dir.path / "missing"), "missing: no such file");
  has(text(dir.path), "is a directory, expected a safetensors file");
  REQUIRE(::mkfifo((dir.path / "pipe").c_str(), 0600) == 0);
  has(text(dir.path / "pipe"), "is not a regular file");
  has(text("/dev/zero"), "is not a regular file");
}

TEST_CASE("a header of hundreds of thousands of tensors takes a few times its size in memory",
          "[data][safetensors]") {
  Folder dir;
  std::string header = "{";
  constexpr int64_t kCount = 300'000;
  for (int64_t i = 0; i < kCount; ++i) {
    const std::string begin = std::to_string(i), end = std::to_string(i + 1);
    header += "\"" + begin + R"(":{"dtype":"U8","shape":[],"data_offsets":[)" + begin + "," + end + "]},";
  }
  header.back() = '}';
  const std::string path = dir.file("many", file_of(header, std::string(kCount, '\7')));
  const auto peak = [] {
    rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_maxrss * 1024;
  };
  const pid_t pid = fork();
  REQUIRE(pid >= 0);
  if (pid == 0) {  // what earlier tests took is not counted here
    const long before = peak();
    const datasets::Safetensors file(path);
    const double times = static_cast<double>(peak() - before) / static_cast<double>(header.size());
    std::fprintf(stderr, "a header of %zu bytes took %.1f times its size\n", header.size(), times);
    if (file.tensor("299999").item() != 7 || file.entries().size() != kCount) _exit(1);
    _exit(!troupe::testing::kSanitized && times > 6 ? 2 : 0);
  }
  int status = 0;
  REQUIRE(waitpid(pid, &status, 0) == pid);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
}

TEST_CASE("a write that fails leaves the old file and nothing else", "[data][safetensors]") {
  Folder dir;
  const std::string path = dir.path / "m";
  datasets::write_safetensors(path, {{"w", tensor({1, 2}, float32)}});
  const std::string before = content(path);
  has(invalid_text([&] {
        datasets::write_safetensors(path, {{"w", Tensor()}});
      }),
      "tensor \"w\" is undefined");
  has(invalid_text([&] { datasets::write_safetensors(path, {{"\xff", tensor(1.0)}}); }), "not UTF-8");
  has(invalid_text([&] { datasets::write_safetensors(path, {}, {{"a", "\xc0"}}); }), "not UTF-8");
  has(invalid_text([&] {
        datasets::write_safetensors(path, {{"__metadata__", tensor(1.0)}});
      }),
      "which the format keeps");
  has(invalid_text([&] { datasets::write_safetensors(dir.path / "no" / "m", {}); }), "cannot be written");
  fs::create_directory(dir.path / "folder");
  has(invalid_text([&] { datasets::write_safetensors(dir.path / "folder", {}); }), "it is a folder");
  CHECK(content(path) == before);
  CHECK(files_in(dir) == 2);
  has(error_text(ErrorKind::failed,
                 [&] {
                   datasets::AtomicFile file(dir.path / "half", "test");
                   file.write("abc", 3);
                   throw_error(ErrorKind::failed, "given up");
                 }),
      "given up");
  CHECK(files_in(dir) == 2);
}

TEST_CASE("a file that goes to the disk past the cache has the same bytes, of any length",
          "[data][safetensors]") {
  const std::string where = GENERATE("", "/dev/shm");  // a file system that may know no such way
  const Folder dir;
  const std::string path =
      where.empty() ? (dir.path / "f").string() : where + "/troupe-direct-" + std::to_string(getpid());
  constexpr size_t kBlock = size_t{1} << 20;
  std::string bytes(3 * kBlock, '\0');
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * 2654435761u >> 13);
  for (const size_t size :
       {size_t{0}, size_t{1}, size_t{4096}, kBlock - 1, kBlock, kBlock + 1, 2 * kBlock + 4096, 3 * kBlock}) {
    const size_t part = size % 2 ? 2 * kBlock : 100'003;
    INFO(size << " bytes, " << part << " at a time, in " << path);
    datasets::AtomicFile file(path, "test", datasets::AtomicFile::Through::disk);
    for (size_t at = 0; at < size; at += part) file.write(bytes.data() + at, std::min(part, size - at));
    file.commit();
    REQUIRE(content(path) == bytes.substr(0, size));
  }
  fs::remove(path);
}

TEST_CASE("a disk that takes no more is an error, and the old file stays", "[data][safetensors]") {
  struct Limit {  // of the size of files, as a full disk
    rlimit before;
    void (*handler)(int);
    explicit Limit(rlim_t bytes) : handler(std::signal(SIGXFSZ, SIG_IGN)) {
      REQUIRE(::getrlimit(RLIMIT_FSIZE, &before) == 0);
      const rlimit limit{bytes, before.rlim_max};
      REQUIRE(::setrlimit(RLIMIT_FSIZE, &limit) == 0);
    }
    ~Limit() {
      ::setrlimit(RLIMIT_FSIZE, &before);
      std::signal(SIGXFSZ, handler);
    }
  };
  Folder dir;
  const std::string path = dir.path / "m";
  datasets::write_safetensors(path, {{"w", tensor({1, 2}, float32)}});
  const std::string before = content(path);
  std::string text;
  {
    Limit limit(100'000);
    text = error_text(ErrorKind::failed, [&] {
      datasets::write_safetensors(path, {{"w", zeros({100'000})}});
    });
  }
  has(text, "m: cannot be written: ");
  CHECK(content(path) == before);
  CHECK(files_in(dir) == 1);
}

TEST_CASE("files changed at any byte or in their structure are refused or whole", "[data][safetensors]") {
  Folder dir;
  const std::string path = dir.path / "m";
  datasets::write_safetensors(path, some_tensors(), {{"k", "v"}});
  const std::string whole = content(path);
  const size_t header = whole.find('}', whole.rfind("\"data_offsets\"")) + 1;
  int refused = 0, read = 0;
  auto attempt = [&](const std::string& bytes) {
    const std::string at = dir.file("f", bytes);
    try {
      [[maybe_unused]] double sum = 0;
      for (const auto& [name, t] : datasets::read_safetensors(at))
        for (double v : t.to_vector<double>()) sum += v;  // touches every element
      ++read;
    } catch (const Error& e) {
      ++refused;
      CHECK(e.message().find("[safetensors] " + at + ": ") == 0);
    }
  };
  for (size_t n = 0; n < whole.size(); ++n) attempt(whole.substr(0, n));
  CHECK(read == 0);
  Generator random(5);
  for (int i = 0; i < 6000; ++i) {
    std::string bytes = whole;
    for (uint64_t k = 0, times = 1 + random.below(3); k < times; ++k) {
      const size_t at = random.below(header), other = random.below(header), count = random.below(24);
      switch (random.below(6)) {
        case 0:
          bytes[at] = static_cast<char>(random.next());
          break;
        case 1:
          bytes[at] = "0123456789{}[],:\"-."[random.below(19)];
          break;
        case 2:
          bytes.erase(at, count);
          break;
        case 3:
          bytes.insert(at, bytes.substr(other, count));
          break;
        case 4: {  // a digit, where a digit is
          const size_t digit = bytes.find_first_of("0123456789", at);
          if (digit != std::string::npos) bytes[digit] = static_cast<char>('0' + random.below(10));
          break;
        }
        default:
          bytes[random.below(8)] = static_cast<char>(random.next());
      }
      bytes.resize(std::max(bytes.size(), header));
    }
    attempt(bytes);
  }
  CHECK(refused > 5000);
  CHECK(read > 100);  // a changed name or element is a valid file
}
