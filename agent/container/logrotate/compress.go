package logrotate

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
)

// level saves CPU time: log lines are repetitive and compress well at any level.
const level = gzip.BestSpeed

// compress replaces a rotated log by its compressed form. It removes the plain
// file only after the compressed one is synced to disk.
func (f *logDir) compress(ctx context.Context, name string) error {
	tmp := name + tmpSuffix
	err := f.write(ctx, name, tmp)
	if err == nil {
		err = f.root.Rename(tmp, name+gzSuffix)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("compress rotated log %q: %w", name, err), f.remove(tmp))
	}
	if err := f.sync(); err != nil {
		return err
	}
	return f.remove(name)
}

// write compresses a file to another one with the same owner and mode, and
// syncs it to disk.
func (f *logDir) write(ctx context.Context, from, to string) error {
	in, info, err := f.open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := f.root.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	err = errors.Join(copyOwner(out, info), stream(ctx, out, in))
	if err == nil {
		err = out.Sync()
	}
	return errors.Join(err, out.Close())
}

// copyOwner sets the mode and, if it differs from the agent's, the owner.
func copyOwner(out *os.File, info fs.FileInfo) error {
	if err := out.Chmod(info.Mode().Perm()); err != nil {
		return err
	}
	s, ok := info.Sys().(*syscall.Stat_t)
	if !ok || (int64(s.Uid) == int64(os.Geteuid()) && int64(s.Gid) == int64(os.Getegid())) {
		return nil
	}
	return out.Chown(int(s.Uid), int(s.Gid))
}

// stream compresses in to out in constant memory. It stops when ctx ends.
func stream(ctx context.Context, out io.Writer, in io.Reader) error {
	w, err := gzip.NewWriterLevel(out, level)
	if err != nil {
		return err
	}
	if _, err := io.Copy(w, readFunc(func(b []byte) (int, error) {
		if ctx.Err() != nil {
			return 0, context.Cause(ctx)
		}
		return in.Read(b)
	})); err != nil {
		return err
	}
	return w.Close()
}

type readFunc func(b []byte) (int, error)

func (f readFunc) Read(b []byte) (int, error) { return f(b) }
