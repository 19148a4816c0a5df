/// \file packed.h
/// JSON objects as short bytes, which ranks exchange while a communicator is made.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "runtime/base/status.h"

namespace flx {

inline std::string pack(const nlohmann::json &object) {
    const std::vector<uint8_t> bytes = nlohmann::json::to_cbor(object);
    return {bytes.begin(), bytes.end()};
}

/// What `rank` packed. FLX_ERR_SYSTEM if it cannot be read.
inline Status unpack(const std::string &bytes, int rank, nlohmann::json &object) {
    object = nlohmann::json::from_cbor(bytes, true, false);
    if (object.is_discarded())
        return fail(Fault::not_readable,
                    "what rank {} sent while the communicator was made cannot be read; all ranks need the same library",
                    rank);
    return {};
}

/// A value that holds any bytes, and those bytes again.
inline nlohmann::json binary(const std::string &bytes) {
    return nlohmann::json::binary({bytes.begin(), bytes.end()});
}
inline std::string text_of(const nlohmann::json &value) {
    return {value.get_binary().begin(), value.get_binary().end()};
}

}  // namespace flx
