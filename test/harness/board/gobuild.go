package board

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path"
	"path/filepath"
)

const (
	containerdModule = "github.com/containerd/containerd/v2"
	// What boards have no hardware or use for; it makes the shims a third smaller.
	containerdTags = "no_btrfs no_devmapper no_zfs no_rdt no_systemd no_tracing nri_no_wasm"
)

// containerdPrograms are installed in the board's /usr/bin.
var containerdPrograms = []string{"containerd", "containerd-shim-runc-v2", "ctr"}

// buildContainerd builds containerd's programs from its Go module into dir,
// unless they are there.
func buildContainerd(ctx context.Context, a Arch, version, dir string, say *progress) error {
	done := filepath.Join(dir, "complete")
	if _, err := os.Stat(done); err == nil {
		return nil
	}
	env, err := a.GoEnv()
	if err != nil {
		return err
	}
	say.printf("building containerd %s for %s: this takes some minutes, once", version, a)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("build containerd: %w", err)
	}
	out, err := run(ctx, os.TempDir(), []string{"GOWORK=off"}, "go", "mod", "download", "-json", containerdModule+"@"+version)
	if err != nil {
		return fmt.Errorf("download containerd's sources: %w", err)
	}
	var mod struct{ Dir string }
	if err := json.Unmarshal(out, &mod); err != nil {
		return fmt.Errorf("download containerd's sources: %w", err)
	}
	args := []string{
		"build", "-trimpath", "-buildvcs=false", "-mod=readonly", "-tags", containerdTags,
		"-ldflags", "-s -w -X " + containerdModule + "/version.Version=" + version, "-o", dir + "/",
	}
	for _, p := range containerdPrograms {
		args = append(args, "./cmd/"+p)
	}
	if _, err := run(ctx, mod.Dir, append(env, "GOWORK=off", "GOFLAGS="), "go", args...); err != nil {
		return fmt.Errorf("build containerd: %w", err)
	}
	return writeFile(done, nil, 0o644)
}

// RuntimeFiles are the programs of o.Stock's containerd, built if they are not
// in the cache, as files of a board's folder dir.
func RuntimeFiles(ctx context.Context, o Options, dir string) ([]File, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	say := newProgress(o.Progress)
	version := stockBoards[o.Stock].containerd
	if version == "" {
		return nil, fmt.Errorf("containerd of %q is a package of the distribution", o.Stock)
	}
	built := containerdDir(o.CacheDir, o.Arch, version)
	unlock, err := lock(ctx, o.CacheDir, say)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := buildContainerd(ctx, o.Arch, version, built, say); err != nil {
		return nil, err
	}
	files := make([]File, len(containerdPrograms))
	for i, name := range containerdPrograms {
		data, err := os.ReadFile(filepath.Join(built, name))
		if err != nil {
			return nil, fmt.Errorf("read containerd's programs: %w", err)
		}
		files[i] = File{Path: path.Join(dir, name), Mode: 0o755, Data: data}
	}
	return files, nil
}

// buildGuest builds the board's control program.
func buildGuest(ctx context.Context, a Arch, repo, file string) error {
	env, err := a.GoEnv()
	if err != nil {
		return err
	}
	_, err = run(ctx, repo, env, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w", "-o", file, "./test/harness/board/cmd/guest")
	if err != nil {
		return fmt.Errorf("build the board's control program: %w", err)
	}
	return nil
}

// containerdDir names the folder of one build by what decides its content.
func containerdDir(cache string, a Arch, version string) string {
	key := sha256.Sum256([]byte(version + "\n" + containerdTags))
	return filepath.Join(cache, "containerd", string(a)+"-"+hex.EncodeToString(key[:4]))
}

// containerdDirs are the folders of the builds that any board needs.
func containerdDirs(cache string, a Arch) (dirs []string) {
	for _, s := range stockBoards {
		if s.containerd != "" {
			dirs = append(dirs, containerdDir(cache, a, s.containerd))
		}
	}
	return dirs
}
