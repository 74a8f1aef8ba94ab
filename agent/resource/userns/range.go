package userns

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strconv"
	"strings"
)

// owner is the user whose subordinate ids are the pods'.
const owner = "kubelet"

// Range answers which ids of the node are the pods': those that
// etc/subuid and etc/subgid under root, the node's file system, give to the
// user kubelet, by its name or by its id in etc/passwd (subuid(5)); or, where
// they give none, all from perPod on. It is an error if they give more than
// one range, or different ones. Ids that a name service gives are not asked
// for.
func Range(root fs.FS, perPod uint32) (first, length uint32, err error) {
	if perPod == 0 {
		perPod = unit
	}
	id, err := idOf(root)
	if err != nil {
		return 0, 0, fmt.Errorf("ids for user namespaces: %w", err)
	}
	users, err := subordinate(root, "etc/subuid", id)
	if err != nil {
		return 0, 0, fmt.Errorf("ids for user namespaces: %w", err)
	}
	groups, err := subordinate(root, "etc/subgid", id)
	if err != nil {
		return 0, 0, fmt.Errorf("ids for user namespaces: %w", err)
	}
	switch {
	case len(users) == 0 && len(groups) == 0:
		return perPod, uint32(1<<32 - uint64(perPod)), nil
	case len(users) != 1 || len(groups) != 1 || users[0] != groups[0]:
		return 0, 0, fmt.Errorf("ids for user namespaces: /etc/subuid has %v and /etc/subgid has %v for %s: they must have the same one range", users, groups, owner)
	}
	return users[0].first, users[0].length, nil
}

// String is how the span stands in etc/subuid.
func (s span) String() string { return fmt.Sprintf("%d:%d", s.first, s.length) }

// idOf is the user's id, or "" if there is no such user.
func idOf(root fs.FS) (string, error) {
	id := ""
	err := eachLine(root, "etc/passwd", func(fields []string) error {
		if len(fields) > 2 && fields[0] == owner {
			id = fields[2]
		}
		return nil
	})
	return id, err
}

func subordinate(root fs.FS, name, id string) ([]span, error) {
	var out []span
	err := eachLine(root, name, func(fields []string) error {
		if fields[0] != owner && (id == "" || fields[0] != id) {
			return nil
		}
		if len(fields) != 3 {
			return fmt.Errorf("/%s: expected %s:FIRST:COUNT", name, fields[0])
		}
		first, err := strconv.ParseUint(fields[1], 10, 32)
		count, cerr := strconv.ParseUint(fields[2], 10, 32)
		if err := errors.Join(err, cerr); err != nil {
			return fmt.Errorf("/%s: %w", name, err)
		}
		out = append(out, span{uint32(first), uint32(count)})
		return nil
	})
	return out, err
}

// eachLine yields the fields of each line of a file that may be missing.
func eachLine(root fs.FS, name string, yield func(fields []string) error) error {
	f, err := root.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	lines := bufio.NewScanner(io.LimitReader(f, maxAccounts))
	for lines.Scan() {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if err := yield(strings.Split(line, ":")); err != nil {
			return err
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("read /%s: %w", name, err)
	}
	return nil
}

// maxAccounts bounds what is read of a file of accounts, in bytes.
const maxAccounts = 1 << 20
