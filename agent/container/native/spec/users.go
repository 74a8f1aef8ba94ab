package spec

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

const (
	// maxUserFile is the maximum size of /etc/passwd and of /etc/group in bytes.
	maxUserFile = 1 << 20
	// maxUserLine is the maximum length of a line in bytes, as bufio.Scanner has it, with
	// which containerd reads passwd.
	maxUserLine = 64<<10 - 1
)

// Users are the users and groups of a root filesystem, in the order of the files. The nil
// Users has none. It keeps the text of the files in memory, some MiB at most.
type Users struct {
	users  []userEntry
	groups []groupEntry
}

type userEntry struct {
	name     string
	uid, gid uint32
}

type groupEntry struct {
	name, members string // members are separated by commas
	gid           uint32
}

// ParseUsers reads the content of /etc/passwd and /etc/group; nil is a file that does not
// exist. It skips entries that have no number from 0 to 2147483647 as their ID, comments in
// group and empty lines. An entry of passwd without a group has group 0. It fails for a file over
// 1 MiB and for a line over 64 KiB. Both files may be hostile.
func ParseUsers(passwd, group io.Reader) (*Users, error) {
	out := &Users{}
	if err := eachLine(passwd, "/etc/passwd", out.addUser); err != nil {
		return nil, err
	}
	if err := eachLine(group, "/etc/group", out.addGroup); err != nil {
		return nil, err
	}
	return out, nil
}

// eachLine calls add with each line that is not blank, without the spaces around it.
func eachLine(r io.Reader, name string, add func(string)) error {
	if r == nil {
		return nil
	}
	text, err := io.ReadAll(io.LimitReader(r, maxUserFile+1))
	if err != nil {
		return fmt.Errorf("read %s of the image: %w", name, err)
	}
	if len(text) > maxUserFile {
		return fmt.Errorf("read %s of the image: it has more than %d bytes: remove entries from the image", name, maxUserFile)
	}
	for line := range strings.SplitSeq(string(text), "\n") {
		if len(line) > maxUserLine {
			return fmt.Errorf("read %s of the image: a line has more than %d bytes: split it in the image", name, maxUserLine)
		}
		if line = strings.TrimSpace(line); line != "" {
			add(line)
		}
	}
	return nil
}

// addUser adds an entry name:password:uid:gid:...
func (u *Users) addUser(line string) {
	name, rest, _ := strings.Cut(line, ":")
	_, rest, _ = strings.Cut(rest, ":")
	uidText, rest, _ := strings.Cut(rest, ":")
	gidText, _, _ := strings.Cut(rest, ":")
	uid, ok := entryID(uidText)
	if !ok {
		return
	}
	var gid uint32
	if gidText != "" {
		if gid, ok = entryID(gidText); !ok {
			return
		}
	}
	u.users = append(u.users, userEntry{name, uid, gid})
}

// addGroup adds an entry name:password:gid:members.
func (u *Users) addGroup(line string) {
	if line[0] == '#' {
		return
	}
	name, rest, _ := strings.Cut(line, ":")
	_, rest, _ = strings.Cut(rest, ":")
	gidText, rest, _ := strings.Cut(rest, ":")
	members, _, _ := strings.Cut(rest, ":")
	if gid, ok := entryID(gidText); ok {
		u.groups = append(u.groups, groupEntry{name, members, gid})
	}
}

func entryID(text string) (uint32, bool) {
	n, err := strconv.ParseInt(text, 10, 32)
	return uint32(n), err == nil && n >= 0
}

// byID returns the first user with that ID.
func (u *Users) byID(uid uint32) (userEntry, bool) {
	return u.first(func(e userEntry) bool { return e.uid == uid })
}

// byName returns the first user of that name.
func (u *Users) byName(name string) (userEntry, bool) {
	return u.first(func(e userEntry) bool { return e.name == name })
}

func (u *Users) first(match func(userEntry) bool) (userEntry, bool) {
	if u == nil {
		return userEntry{}, false
	}
	i := slices.IndexFunc(u.users, match)
	if i < 0 {
		return userEntry{}, false
	}
	return u.users[i], true
}

// groupByName returns the ID of the first group of that name.
func (u *Users) groupByName(name string) (uint32, bool) {
	if u == nil {
		return 0, false
	}
	i := slices.IndexFunc(u.groups, func(e groupEntry) bool { return e.name == name })
	if i < 0 {
		return 0, false
	}
	return u.groups[i].gid, true
}

// groupsOf returns the IDs of the groups that have the user as a member, except the group of
// the same name, in the order of the file.
func (u *Users) groupsOf(name string) []uint32 {
	if u == nil {
		return nil
	}
	var gids []uint32
	for _, e := range u.groups {
		if e.name != name && e.hasMember(name) {
			gids = append(gids, e.gid)
		}
	}
	return gids
}

func (e groupEntry) hasMember(name string) bool {
	if e.members == "" {
		return false
	}
	for member := range strings.SplitSeq(e.members, ",") {
		if member == name {
			return true
		}
	}
	return false
}
