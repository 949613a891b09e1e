#pragma once

namespace tilewright::explain {

/// page.html. The report replaces "/*REPORT*/" in it.
extern const char* const kPage;

}  // namespace tilewright::explain
