#pragma once
// Records of the tuning database as text: one JSON object per line, to be stored, compared, and merged elsewhere.
//
//     {"format":1,"kind":"measurement","stages":"program k {...","schedule":"tile k {...","target":"0123456789abcdef",
//      "settings":"threads=1 warmth=warm","generator":1,"verdict":"measured","reason":"","seconds":0.001,"spread":0.02,
//      "samples":31,"when":1700000000}
//     {"format":1,"kind":"choice","stages":...,"target":...,"scheduler":"construct","options":"budget=1","generator":1,
//      "schedule":...,"estimate":0.001,"seconds":0.001,"spread":0.02,"samples":31,"when":1700000000}

#include <string>
#include <string_view>
#include <vector>

#include "tune/database.h"

namespace tilewright {

struct TuningRecords {
    std::vector<Measurement> measurements;
    std::vector<Choice> choices;
};

/// Without a line end. Numbers are read back exactly; invalid UTF-8 (which no canonical text contains) becomes U+FFFD.
std::string to_json_line(const Measurement& record);
std::string to_json_line(const Choice& record);

/// Parses such lines; empty lines and unknown fields are ignored. Throws ModelError with `what`, the line, and the
/// error in it.
TuningRecords parse_json_lines(std::string_view text, const std::string& what);

/// All records of the database.
TuningRecords all_records(const TuningDatabase& db);

}  // namespace tilewright
