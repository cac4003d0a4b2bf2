"""Makes an export of Nsight Systems: tables and columns as `nsys export --type sqlite` (2023.4) names
them, a process with two threads and a GPU. usage: nsight_maker.py FILE"""
import sqlite3
import sys

PID, THREAD, LOADER = 4242, 4242, 4243
PROCESS = (1 << 56) | (PID << 24)
STRINGS = ["cudaLaunchKernel_v7000", "cudaMemcpyAsync_v3020", "void sgemm<float>(float*)", "forward", "loader",
           "cudaMemsetAsync_v3020"]

db = sqlite3.connect(sys.argv[1])
db.executescript("""
CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE ThreadNames (nameId INTEGER NOT NULL, priority INTEGER, globalTid INTEGER);
CREATE TABLE NVTX_EVENTS (start INTEGER NOT NULL, end INTEGER, eventType INTEGER NOT NULL, rangeId INTEGER,
  category INTEGER, color INTEGER, text TEXT, globalTid INTEGER, endGlobalTid INTEGER, textId INTEGER,
  domainId INTEGER, uint64Value INTEGER, int64Value INTEGER, doubleValue REAL);
CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER NOT NULL, end INTEGER NOT NULL, eventClass INTEGER NOT NULL,
  globalTid INTEGER, correlationId INTEGER, nameId INTEGER NOT NULL, returnValue INTEGER NOT NULL,
  callchainId INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL,
  contextId INTEGER NOT NULL, streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER,
  demangledName INTEGER NOT NULL, shortName INTEGER NOT NULL, registersPerThread INTEGER NOT NULL,
  gridX INTEGER NOT NULL, gridY INTEGER NOT NULL, gridZ INTEGER NOT NULL, blockX INTEGER NOT NULL,
  blockY INTEGER NOT NULL, blockZ INTEGER NOT NULL, staticSharedMemory INTEGER NOT NULL,
  dynamicSharedMemory INTEGER NOT NULL);
CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL,
  contextId INTEGER NOT NULL, streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER,
  bytes INTEGER NOT NULL, copyKind INTEGER NOT NULL);
CREATE TABLE CUPTI_ACTIVITY_KIND_MEMSET (start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL,
  contextId INTEGER NOT NULL, streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER,
  value INTEGER NOT NULL, bytes INTEGER NOT NULL);
""")
db.executemany("INSERT INTO StringIds VALUES (?, ?)", enumerate(STRINGS))
db.execute("INSERT INTO ThreadNames VALUES (4, 0, ?)", (PROCESS | LOADER,))
nvtx = "INSERT INTO NVTX_EVENTS (start, end, eventType, text, textId, globalTid) VALUES (?, ?, ?, ?, ?, ?)"
for step in range(3):
    at = 1000000 * step
    db.execute(nvtx, (at + 1000, at + 901000, 59, "step", None, PROCESS | THREAD))
    db.execute(nvtx, (at + 2000, at + 402000, 59, None, 3, PROCESS | THREAD))
    db.execute(nvtx, (at + 5000, at + 65000, 60, "load", None, PROCESS | LOADER))
    for name, start, id in [(0, 10000, 1), (1, 500000, 2), (5, 600000, 3)]:
        db.execute("INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?, ?, 0, ?, ?, ?, 0, NULL)",
                   (at + start, at + start + 8000, PROCESS | THREAD, 3 * step + id, name))
    db.execute("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?, ?, 0, 1, 7, ?, ?, 2, 2, 40, 4, 2, 1, 128, 1, 1, 1024, 512)",
               (at + 30000, at + 230000, 3 * step + 1, PROCESS))
    db.execute("INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (?, ?, 0, 1, 8, ?, ?, 65536, 1)",
               (at + 510000, at + 530000, 3 * step + 2, PROCESS))
    db.execute("INSERT INTO CUPTI_ACTIVITY_KIND_MEMSET VALUES (?, ?, 0, 1, 8, ?, ?, 0, 256)",
               (at + 610000, at + 611000, 3 * step + 3, PROCESS))
db.execute(nvtx, (7, None, 34, "a mark", None, PROCESS | THREAD))
db.execute(nvtx, (8, None, 59, "never ended", None, PROCESS | THREAD))
db.commit()
