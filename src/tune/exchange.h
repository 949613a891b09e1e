#pragma once
// Records of the tuning database as text: one JSON object a line, to be kept, compared, and merged elsewhere.
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

/// Without a line end. Numbers read back exactly; bytes that are no UTF-8 (no canonical text has any) become U+FFFD.
std::string to_json_line(const Measurement& record);
std::string to_json_line(const Choice& record);

/// Reads such lines; empty ones count for nothing, fields it does not know neither. Throws ModelError naming `what`,
/// the line, and what is wrong with it.
TuningRecords parse_json_lines(std::string_view text, const std::string& what);

/// Everything in the database.
TuningRecords all_records(const TuningDatabase& db);

}  // namespace tilewright
