package probe

import (
	"errors"
	"io/fs"
	"log/slog"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/tinylet/tinylet/agent/store/atomicfile"
)

// StateFile is the name of the file with the probe state of running containers.
const StateFile = "probes.json"

// OpenState reads the probe state that an earlier process of the agent saved in dir, and
// returns the function that replaces it. The state is saved only on a tmpfs or ramfs:
// readiness may change every few seconds, and writes wear out flash. If dir is on a disk or
// cannot be checked, both results are nil. OpenState logs errors and does not return them:
// without the state all probes start again after a restart of the agent.
func OpenState(dir string, log *slog.Logger) (saved []byte, save func([]byte) error) {
	path := filepath.Join(dir, StateFile)
	switch inMemory, err := isMemoryFS(filepath.Dir(path)); {
	case err != nil:
		log.Warn("cannot keep probe state", "path", path, "error", err)
		return nil, nil
	case !inMemory:
		log.Info("probe state not kept: not on tmpfs", "path", path,
			"remedy", "set socketPath to a folder on a tmpfs, so that pods stay ready over a restart of the agent")
		return nil, nil
	}
	saved, err := atomicfile.Read(path, MaxSaved+1)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		log.Warn("cannot read saved probe state", "path", path, "error", err)
	}
	return saved, func(data []byte) error { return atomicfile.Write(path, data, 0o600) }
}

// isMemoryFS reports whether a folder is on a tmpfs or ramfs. If the folder does
// not exist, it checks the nearest parent that does.
func isMemoryFS(folder string) (bool, error) {
	for {
		var st unix.Statfs_t
		err := unix.Statfs(folder, &st)
		if errors.Is(err, unix.ENOENT) && folder != filepath.Dir(folder) {
			folder = filepath.Dir(folder)
			continue
		}
		if err != nil {
			return false, &fs.PathError{Op: "statfs", Path: folder, Err: err}
		}
		magic := int64(uint32(st.Type)) //nolint:unconvert // int32 on 32 bit machines
		return magic == unix.TMPFS_MAGIC || magic == unix.RAMFS_MAGIC, nil
	}
}
