// Files of other programs' formats, made here: gzip, zstd, tar, PNG and JPEG.
#pragma once
#include <zlib.h>

#include <catch2/catch.hpp>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace troupe::testing {

inline std::string gzip_of(std::string_view text) {
  z_stream z{};
  REQUIRE(deflateInit2(&z, 6, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY) == Z_OK);
  std::string out(deflateBound(&z, text.size()) + 64, '\0');
  z.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  z.avail_in = static_cast<unsigned>(text.size());
  z.next_out = reinterpret_cast<Bytef*>(out.data());
  z.avail_out = static_cast<unsigned>(out.size());
  REQUIRE(deflate(&z, Z_FINISH) == Z_STREAM_END);
  out.resize(z.total_out);
  deflateEnd(&z);
  return out;
}

inline std::string little(uint64_t value, int bytes) {
  std::string out;
  for (int b = 0; b < bytes; ++b) out += static_cast<char>(value >> (8 * b));
  return out;
}
inline std::string big(uint32_t value) {
  const std::string out = little(value, 4);
  return {out.rbegin(), out.rend()};
}

// A frame of blocks that are stored as they are.
inline std::string zstd_of(std::string_view text) {
  std::string out = little(0xfd2fb528, 4) + '\xe0' + little(text.size(), 8);
  for (size_t at = 0, part = 0; at == 0 || at < text.size(); at += part) {
    part = std::min<size_t>(text.size() - at, 100000);
    const bool last = at + part == text.size();
    out += little(part << 3 | last, 3);
    out += text.substr(at, part);
    if (last) break;
  }
  return out;
}

using Members = std::vector<std::pair<std::string, std::string>>;  // names and contents

inline std::string tar_member(const std::string& name, const std::string& content, const char* type = "0") {
  std::string head(512, '\0');
  const auto put = [&](size_t at, const std::string& text) { head.replace(at, text.size(), text); };
  const auto octal = [](uint64_t value, size_t digits) {
    std::string text(digits, '0');
    for (; value; value >>= 3) text[--digits] = static_cast<char>('0' + (value & 7));
    return text;
  };
  put(0, name), put(100, "0000644"), put(108, "0000000"), put(116, "0000000");
  put(124, octal(content.size(), 11)), put(136, octal(0, 11)), put(148, std::string(8, ' '));
  put(156, type), put(257, "ustar"), put(263, "00");
  unsigned sum = 0;
  for (const char c : head) sum += static_cast<unsigned char>(c);
  put(148, octal(sum, 6) + '\0');
  return head + content + std::string((512 - content.size() % 512) % 512, '\0');
}

inline std::string tar_of(const Members& members, bool ends = true) {
  std::string out;
  for (const auto& [name, content] : members) out += tar_member(name, content);
  return ends ? out + std::string(1024, '\0') : out;
}

// A header that says more about the member behind it.
inline std::string pax_of(const std::string& key, const std::string& value) {
  const std::string record = " " + key + "=" + value + "\n";
  size_t size = record.size() + 1;
  while (std::to_string(size).size() + record.size() != size) ++size;
  return tar_member("pax", std::to_string(size) + record, "x");
}

inline std::string png_chunk(const std::string& text) {
  return big(static_cast<uint32_t>(text.size() - 4)) + text +
         big(static_cast<uint32_t>(
             crc32(0, reinterpret_cast<const Bytef*>(text.data()), static_cast<unsigned>(text.size()))));
}

// `values` row by row, three for each pixel; `more` are chunks before them.
inline std::string png_of(uint32_t height, uint32_t width, std::string_view values,
                          const std::string& more = "") {
  std::string rows;
  for (uint32_t y = 0; y < height; ++y) rows += '\0' + std::string(values.substr(y * width * 3, width * 3));
  uLongf size = compressBound(rows.size());
  std::string packed(size, '\0');
  REQUIRE(compress(reinterpret_cast<Bytef*>(packed.data()), &size,
                   reinterpret_cast<const Bytef*>(rows.data()), rows.size()) == Z_OK);
  packed.resize(size);
  return "\x89PNG\r\n\x1a\n" +
         png_chunk("IHDR" + big(height == 0 ? 0 : width) + big(height) + std::string("\x8\x2\0\0\0", 5)) +
         more + png_chunk("IDAT" + packed) + png_chunk("IEND");
}

// 16 x 16 pixels: the left half is red, the right one blue.
inline std::string red_and_blue_jpeg() {
  constexpr std::string_view kHex =
      "ffd8ffe000104a46494600010100000100010000ffdb0043000302020302020303030304030304050805050404050a07070608"
      "0c0a"
      "0c0c0b0a0b0b0d0e12100d0e110e0b0b1016101113141515150c0f171816141812141514ffdb00430103040405040509050509"
      "14"
      "0d0b0d141414141414141414141414141414141414141414141414141414141414141414141414141414141414141414141414"
      "1414"
      "1414141414ffc00011080010001003011100021101031101ffc4001500010100000000000000000000000000000708ffc40014"
      "1001"
      "00000000000000000000000000000000ffc4001501010100000000000000000000000000000907ffc400141101000000000000"
      "0000"
      "0000000000000000ffda000c03010002110311003f009d10c2a60238c1d0fa0e4c5808e30747ffd9";
  std::string out;
  const auto digit = [](char c) { return c <= '9' ? c - '0' : c - 'a' + 10; };
  for (size_t i = 0; i < kHex.size(); i += 2)
    out += static_cast<char>(digit(kHex[i]) * 16 + digit(kHex[i + 1]));
  return out;
}

}  // namespace troupe::testing
