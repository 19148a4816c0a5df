/// \file bootstrap_store.h
/// The bootstrap without MPI: ranks meet in a store that rank 0 keeps (server.h).
#pragma once

#include <functional>
#include <memory>

#include "runtime/base/status.h"
#include "runtime/link/bootstrap.h"
#include "runtime/store/wire.h"

namespace flx::store {

/// What a program said of its place; null, 0, -1 and 0 stand for MASTER_ADDR, MASTER_PORT, RANK and WORLD_SIZE.
/// Fault::wrong_place where something is missing or cannot be.
Status find_place(const char *address, int port, int rank, int size, Place &place);

/// A bootstrap of the ranks that come to `place`. Collective over them; returns when all are there, or with an error
/// that names those that did not come. `meanwhile`, if there is one, is called again and again until then, and its
/// error ends the wait.
Status make_store_bootstrap(const Place &place, std::unique_ptr<Bootstrap> &result,
                            const std::function<Status()> &meanwhile = {});

}  // namespace flx::store
