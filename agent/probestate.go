package agent

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/tinylet/tinylet/agent/apiserver/identity"
	"github.com/tinylet/tinylet/agent/config"
	"github.com/tinylet/tinylet/agent/podworker/probe"
	"github.com/tinylet/tinylet/agent/server/local"
)

// probeStateName is beside the socket: what the probes know of the containers
// that run.
const probeStateName = "probes.json"

// runFolder is where the agent keeps what a reboot may lose.
func runFolder(cfg *config.Config) string {
	socket := cfg.Tinylet.SocketPath
	if socket == "" {
		socket = local.DefaultSocketPath
	}
	return filepath.Dir(socket)
}

// probeState reads the state that the probes of an earlier run of the agent
// saved, and saves theirs in its place: in memory only, since readiness may
// change every few seconds and would wear out flash. save is nil where the
// folder is on a disk.
func probeState(cfg *config.Config, log *slog.Logger) (saved []byte, save func([]byte) error) {
	path := filepath.Join(runFolder(cfg), probeStateName)
	switch inMemory, err := onMemory(filepath.Dir(path)); {
	case err != nil:
		log.Warn("probe state is not kept", "path", path, "error", err)
		return nil, nil
	case !inMemory:
		log.Info("probe state is not kept on a disk", "path", path,
			"remedy", "set socketPath to a folder of a tmpfs, so that pods stay ready over a restart of the agent")
		return nil, nil
	}
	saved, err := readBounded(path, probe.MaxSaved+1)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		log.Warn("saved probe state cannot be read", "path", path, "error", err)
	}
	return saved, func(data []byte) error { return identity.Replace(path, data, 0o600) }
}

// onMemory reports whether a folder, or where it is missing the one that it
// will be made in, is on a file system in memory.
func onMemory(folder string) (bool, error) {
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

// readBounded reads at most limit bytes of a regular file.
func readBounded(path string, limit int64) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, &fs.PathError{Op: "read", Path: path, Err: errors.New("not a regular file")}
	}
	data := make([]byte, min(info.Size(), limit))
	n, err := f.ReadAt(data, 0)
	if n == len(data) {
		err = nil
	}
	return data[:n], err
}
