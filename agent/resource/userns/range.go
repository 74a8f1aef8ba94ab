package userns

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strconv"
	"strings"
)

// subIDUser is the user whose subordinate IDs are for pods.
const subIDUser = "kubelet"

// Range returns the range of the node's IDs for pods: the subordinate IDs of the user
// kubelet, by name or by its ID in etc/passwd, in etc/subuid and etc/subgid
// (subuid(5)). root is the node's file system. If there are none, the range is all
// IDs from perPod on. More than one range, or different ranges of users and groups,
// are an error. Range does not query name services.
func Range(root fs.FS, perPod uint32) (first, length uint32, err error) {
	perPod = cmp.Or(perPod, rangeUnit)
	users, groups, err := subordinates(root)
	if err != nil {
		return 0, 0, fmt.Errorf("user namespaces: %w", err)
	}
	switch {
	case len(users) == 0 && len(groups) == 0:
		return perPod, uint32(1<<32 - uint64(perPod)), nil
	case len(users) != 1 || len(groups) != 1 || users[0] != groups[0]:
		return 0, 0, fmt.Errorf("user namespaces: /etc/subuid has %v and /etc/subgid has %v for %s: both must have the same single range", users, groups, subIDUser)
	}
	return users[0].first, users[0].length, nil
}

// subordinates returns the ranges of the user in etc/subuid and in etc/subgid.
func subordinates(root fs.FS) (users, groups []span, err error) {
	id, err := idOf(root)
	if err == nil {
		users, err = subordinate(root, "etc/subuid", id)
	}
	if err == nil {
		groups, err = subordinate(root, "etc/subgid", id)
	}
	return users, groups, err
}

// String returns the span in the format of etc/subuid.
func (s span) String() string { return fmt.Sprintf("%d:%d", s.first, s.length) }

// idOf returns the ID of subIDUser, or "" if there is no such user.
func idOf(root fs.FS) (string, error) {
	id := ""
	err := eachLine(root, "etc/passwd", func(fields []string) error {
		if len(fields) > 2 && fields[0] == subIDUser {
			id = fields[2]
		}
		return nil
	})
	return id, err
}

func subordinate(root fs.FS, name, id string) ([]span, error) {
	var out []span
	err := eachLine(root, name, func(fields []string) error {
		if fields[0] != subIDUser && (id == "" || fields[0] != id) {
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

// eachLine calls yield with the colon-separated fields of each line, except blank
// lines and comments. A missing file has no lines.
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

// maxAccounts is how many bytes of an account file are read at most. The rest is ignored.
const maxAccounts = 1 << 20
