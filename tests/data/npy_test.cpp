// NPY files: NumPy's own bytes are read, ours are NumPy's, and broken ones are refused.
#include "data/formats/npy.h"
#include "core/tensor/creation.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>

#include "core/base/generator.h"
#include "tests/support/error_of.h"
#include "tests/support/folder.h"

using namespace troupe;
using troupe::testing::content;
using troupe::testing::error_text;
using troupe::testing::Folder;
using troupe::testing::invalid_text;

namespace {

std::string npy(const std::string& dict, const std::string& data, int version = 1) {
  std::string out = std::string("\x93NUMPY") + static_cast<char>(version) + '\0';
  const uint32_t length = static_cast<uint32_t>(dict.size());
  out.append(reinterpret_cast<const char*>(&length), version == 1 ? 2 : 4);
  return out + dict + data;
}
std::string dict(const std::string& descr, const std::string& shape, const std::string& fortran = "False") {
  return "{'descr': '" + descr + "', 'fortran_order': " + fortran + ", 'shape': " + shape + ", }\n";
}
template <class T>
std::string bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}
void has(const std::string& text, const std::string& part) {
  INFO(text);
  CHECK(text.find(part) != std::string::npos);
}

}  // namespace

TEST_CASE("arrays come back bit for bit, in the bytes that NumPy writes", "[data][npy]") {
  Folder dir;
  const std::string path = dir.path / "a.npy";
  Tensor flag = zeros({2}, boolean);
  flag.data<bool>()[1] = true;
  for (const Tensor& t : {tensor({{1, -2, 3.5f}, {NAN, 5, 6}}), tensor({1e300, -0.0}, float64),
                          tensor({INT64_MIN, INT64_MAX}, int64), flag, full({3}, 1.5, float16), tensor(2.5),
                          zeros({0, 3}), zeros({1, 2, 1, 3})}) {
    datasets::write_npy(path, t);
    INFO(t.summary());
    CHECK(bit_equal(datasets::read_npy(path), t));
    CHECK((content(path).size() - t.nbytes()) % 64 == 0);
  }
  // np.save of np.array([[1, 2]], np.float32)
  datasets::write_npy(path, tensor({{1, 2}}, float32));
  CHECK(content(path) ==
        npy("{'descr': '<f4', 'fortran_order': False, 'shape': (1, 2), }" + std::string(58, ' ') + "\n",
            bytes_of<float>({1, 2})));
  for (const Tensor& narrow : {tensor({-1, 7}, int32), tensor({255, 7}, uint8)}) {
    datasets::write_npy(path, narrow);
    CHECK(bit_equal(datasets::read_npy(path), narrow));
  }
  const Tensor t = tensor({{1, 2, 3}, {4, 5, 6}}, float32);
  datasets::write_npy(path, t.alias({3, 2}, {1, 3}, 0));
  CHECK(datasets::read_npy(path).to_vector<float>() == std::vector<float>{1, 4, 2, 5, 3, 6});
}

TEST_CASE("all number types, byte orders and both orders of elements are read", "[data][npy]") {
  Folder dir;
  auto read = [&](const std::string& bytes) { return datasets::read_npy(dir.file("f", bytes)); };
  const std::vector<int64_t> small{1, -2};
  CHECK(read(npy(dict("|i1", "(2,)"), bytes_of<int8_t>({1, -2}))).to_vector<int64_t>() == small);
  CHECK(read(npy(dict("<i2", "(2,)"), bytes_of<int16_t>({1, -2}))).to_vector<int64_t>() == small);
  CHECK(read(npy(dict("<i4", "(2,)"), bytes_of<int32_t>({1, -2}))).to_vector<int64_t>() == small);
  CHECK(read(npy(dict(">i4", "(2,)"), std::string("\0\0\0\1\xff\xff\xff\xfe", 8))).to_vector<int64_t>() ==
        small);
  CHECK(read(npy(dict(">i8", "(1,)"), std::string("\0\0\0\0\0\0\1\0", 8))).to_vector<int64_t>() ==
        std::vector<int64_t>{256});
  CHECK(read(npy(dict("|u1", "(1,)"), "\xff")).summary() == "uint8 [1]");
  CHECK(read(npy(dict(">i4", "(1,)"), std::string("\0\0\0\1", 4))).summary() == "int32 [1]");
  CHECK(read(npy(dict("<u2", "(1,)"), "\xff\xff")).item() == 65535);
  CHECK(read(npy(dict("<u4", "()"), "\xff\xff\xff\xff")).item() == 4294967295.0);
  CHECK(read(npy(dict("<u8", "()"), bytes_of<uint64_t>({77}))).item() == 77);
  CHECK(read(npy(dict("<f2", "(2,)"), std::string("\0\x3c\0\xc0", 4))).to_vector<float>() ==
        std::vector<float>{1, -2});
  CHECK(read(npy(dict(">f2", "()"), std::string("\x3c\0", 2))).summary() == "float16 []");
  CHECK(read(npy(dict(">f2", "()"), std::string("\x3c\0", 2))).item() == 1);
  CHECK(read(npy(dict(">f4", "()"), std::string("\x3f\xc0\0\0", 4))).item() == 1.5);
  CHECK(read(npy(dict("<f4", "(2,)"), bytes_of<float>({1, 2}), 2)).summary() == "float32 [2]");
  CHECK(read(npy(dict("<f8", "(2,)"), bytes_of<double>({1, 2}), 3)).summary() == "float64 [2]");
  const Tensor columns = read(npy(dict("<f4", "(2, 3)", "True"), bytes_of<float>({1, 4, 2, 5, 3, 6})));
  CHECK(columns.summary() == "float32 [2, 3]");
  CHECK(columns.is_contiguous());
  CHECK(columns.to_vector<float>() == std::vector<float>{1, 2, 3, 4, 5, 6});
  // Any order and either quote, as a Python literal may have.
  CHECK(read(npy("{\"shape\":(1,),'fortran_order':True,'descr':'<f4'}", bytes_of<float>({1}))).item() == 1);
}

TEST_CASE("element types and sizes have the spellings that NumPy reads", "[data][npy]") {
  Folder dir;
  auto read = [&](const std::string& bytes) { return datasets::read_npy(dir.file("f", bytes)); };
  for (const char* descr : {"=f4", "f4", "|f4", "float32", "single", "f", "=f", "<f"})
    CHECK(bit_equal(read(npy(dict(descr, "(2,)"), bytes_of<float>({1, 2}))), tensor({1, 2}, float32)));
  for (const char* descr : {">f4", ">f"})
    CHECK(read(npy(dict(descr, "(1,)"), std::string("\x3f\xc0\0\0", 4))).item() == 1.5);
  for (const char* descr : {"f8", "d", "double", "float", "float64", "|d"})
    CHECK(read(npy(dict(descr, "()"), bytes_of<double>({3}))).summary() == "float64 []");
  for (const char* descr : {"i8", "l", "q", "int", "long", "int64", "=i8"})
    CHECK(read(npy(dict(descr, "()"), bytes_of<int64_t>({3}))).summary() == "int64 []");
  for (const char* descr : {"?", "|?", "b1", "<?", "bool", "bool_"})
    CHECK(read(npy(dict(descr, "(1,)"), "\1")).summary() == "bool [1]");
  for (const char* descr : {"b", "int8", "byte", "|i1", ">i1"})
    CHECK(read(npy(dict(descr, "()"), "\xfe")).item() == -2);
  for (const char* descr : {"B", "uint8", "ubyte", "=u1"})
    CHECK(read(npy(dict(descr, "()"), "\xfe")).item() == 254);
  for (const char* shape : {"(2L, 3L)", "(2,3L,)", "(\t2 ,\t3\t)"})
    CHECK(read(npy(dict("<f4", shape), std::string(24, '\0'))).summary() == "float32 [2, 3]");
  CHECK(read(npy("\t{u'descr':\t'<f4',\r\n\t'fortran_order':\tTrue,\t'shape':\t(3L, 1L)}\t\n",
                 bytes_of<float>({1, 2, 3}), 2))
            .summary() == "float32 [3, 1]");
}

TEST_CASE("broken NPY files are refused", "[data][npy]") {
  Folder dir;
  auto read = [&](const std::string& bytes) {
    return invalid_text([&] { datasets::read_npy(dir.file("f", bytes)); });
  };
  auto head = [&](const std::string& dict) { return read(npy(dict, "")); };
  has(read(""), "not an NPY file, or cut short");
  has(read("PK\3\4aaaaaaaa"), "does not begin with \\x93NUMPY");
  has(read(npy("", "", 4)), "unimplemented: [npy] ");
  has(read(npy(dict("<f4", "(2,)"), "1234567")), "has 7 bytes after its header, expected the 8 of '<f4' [2]");
  has(read(npy(dict("<f4", "(2,)"), "123456789")), "has 9 bytes after its header");
  std::string large("\x93NUMPY\2\0\xff\xff\xff\xff", 12);
  has(read(large), "declares a header of 4294967295 bytes, expected at most 65535");
  has(read(std::string("\x93NUMPY\1\0\x10\0{}", 12)), "header of 16 bytes, but has only 2 after byte 10");
  has(read(std::string("\x93NUMPY\2\0\x10", 9)), "ends at byte 9");
  has(head(""), "has its end, expected '{' at its character 0");
  has(head("{}"), "lacks descr");
  has(head("{'descr': '<f4', 'descr': '<f4'}"), "the name \"descr\", expected");
  has(head("{'x': 1}"), "the name \"x\"");
  has(head("{'descr': '<f4'} x"), "more after the dictionary");
  has(head(dict("<f4", "(1)")), "expected ',' after the only size");
  has(head(dict("<f4", "(-1,)")), "'-', expected a size");
  has(head(dict("<f4", "(18446744073709551616,)")), "a size too large");
  has(head(dict("<f4", "(1,1,1,1,1,1,1,1,1)")), "more than 8 dimensions");
  has(head(dict("<f4", "(4294967296, 4294967296)")), "more bytes than can be counted");
  has(head(dict("<f4", "(4294967296, 4294967296, 0)")), "more bytes than can be counted");
  has(head(dict("<f4", "(1099511627776,)")), "has 0 bytes after its header, expected the 4398046511104");
  has(head(dict("<f4", "()", "1")), "expected True or False");
  has(head("{'descr': '<f4"), "a text without its closing quote");
  has(head(std::string("{\0", 2)), "the byte 0");
  has(head(dict("|O", "()")), "unimplemented: [npy] ");
  has(head(dict("|O", "()")), "Python objects ('|O'), which are programs");
  has(head(dict("<c8", "()")), "type '<c8'");
  for (const char* none : {"", "<", "f3", "<float32", "bool8", "x4", "4f", "<f44", "U5", "M8[ns]", "f16"})
    has(head(dict(none, "()")), "has elements of type '" + std::string(none) + "', only f2");
  has(head("{'descr': [('x', '<f4')]}"), "records of several fields");
  has(head("{'descr': [('x', '<f4')]}"), "save each field by itself");
  has(head(dict("<f4", "(LL,)")), "'L', expected a size");
  has(head(dict("<f4", "(1LL,)")), "'L', expected");
  has(head(dict("<f4\x1b[2J", "()")), "'<f4\\x1b[2J'");
  has(read("PK\3\4aaaaaaaa"),
      "it is a ZIP archive, as .npz and .pt files are: unzip an .npz and read each .npy");
  has(read("\x1f\x8b\x08 aaaaaaaa"), "it is gzip data: unpack it first (gunzip)");
  has(read(npy(dict("|b1", "(2,)"), "\1\2")), "element 1 is 2, expected 0 or 1");
  has(read(npy(dict("<u8", "(1,)"), std::string(8, '\xff'))), "too large for int64");
  has(invalid_text([&] { datasets::read_npy(dir.path); }), "is a directory, expected an NPY file");
  has(invalid_text([&] { datasets::write_npy(dir.path / "a", Tensor()); }), "undefined");
  has(error_text(ErrorKind::unimplemented,
                 [&] { datasets::write_npy(dir.path / "a", zeros({1}, bfloat16)); }),
      "no NPY type for bfloat16");
}

TEST_CASE("an NPY file changed at any byte is refused or read within its bounds", "[data][npy]") {
  Folder dir;
  const std::string whole = npy(dict("<i2", "(3, 4)", "True"), std::string(24, '\1'));
  Generator random(3);
  int refused = 0, read = 0;
  auto attempt = [&](const std::string& bytes) {
    try {
      datasets::read_npy(dir.file("f", bytes)).to_vector<double>();
      ++read;
    } catch (const Error& e) {
      ++refused;
      CHECK(e.message().find("[npy] ") == 0);
    }
  };
  for (size_t n = 0; n < whole.size(); ++n) attempt(whole.substr(0, n));
  CHECK(read == 0);
  for (int i = 0; i < 3000; ++i) {
    std::string bytes = whole;
    for (uint64_t k = 0, times = 1 + random.below(2); k < times; ++k) {
      const size_t at = random.below(bytes.size() - 24);
      if (random.below(2)) bytes[at] = static_cast<char>(random.next());
      if (random.below(2)) bytes[at] = "0123456789(),'<>ifub"[random.below(20)];
    }
    attempt(bytes);
  }
  CHECK(refused > 2000);
}
