package spec

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/runtime-spec/specs-go"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func id(n int64) *runtimeapi.Int64Value { return &runtimeapi.Int64Value{Value: n} }

func TestUser(t *testing.T) {
	ids := func(s *specs.Spec) any { return []uint32{s.Process.User.UID, s.Process.User.GID} }
	image := func(user string) func(*Container) { return func(c *Container) { c.Image.User = user } }
	set := func(name string, user, group *runtimeapi.Int64Value) func(*Container) {
		return func(c *Container) {
			c.Image.User = "4:5"
			security(c).RunAsUsername, security(c).RunAsUser, security(c).RunAsGroup = name, user, group
		}
	}
	noFiles := func(change func(*Container)) func(*Container) {
		return func(c *Container) { change(c); c.Users = nil }
	}
	run(t, []row{
		{name: "no user is specified", part: ids, want: []uint32{0, 0}},
		{name: "uid, image's ignored", change: set("", id(7), nil), part: ids, want: []uint32{7, 0}},
		{name: "uid with entry", change: set("", id(1000), nil), part: ids, want: []uint32{1000, 1001}},
		{name: "uid and gid", change: set("", id(1000), id(9)), part: ids, want: []uint32{1000, 9}},
		{name: "root and gid", change: set("", id(0), id(0)), part: ids, want: []uint32{0, 0}},
		{name: "name", change: set("app", nil, nil), part: ids, want: []uint32{1000, 1001}},
		{name: "name over uid", change: set("app", id(7), nil), part: ids, want: []uint32{1000, 1001}},
		{name: "name and gid", change: set("app", nil, id(9)), part: ids, want: []uint32{1000, 9}},
		{name: "gid alone", change: set("", nil, id(9)), err: `run_as_group: user group "9" is specified without user`},
		{name: "unknown name", change: set("none", nil, nil), err: `user "none": no users found`},
		{name: "negative uid", change: set("", id(-1), nil), err: "run_as_user: -1 is out of range"},
		{name: "high uid", change: set("", id(1<<31), nil), err: "run_as_user: 2147483648 is out of range"},
		{name: "highest uid", change: set("", id(1<<31-1), nil), part: ids, want: []uint32{1<<31 - 1, 0}},
		{name: "high gid", change: set("", id(1), id(1<<31)), err: "run_as_group: 2147483648 is out of range"},

		{name: "image uid", change: image("1000"), part: ids, want: []uint32{1000, 1001}},
		{name: "image uid and gid", change: image("1000:5"), part: ids, want: []uint32{1000, 5}},
		{name: "image name", change: image("app"), part: ids, want: []uint32{1000, 1001}},
		{name: "image name and group", change: image("app:audio"), part: ids, want: []uint32{1000, 29}},
		{name: "image uid and group", change: image("3:audio"), part: ids, want: []uint32{3, 29}},
		{name: "image name and gid", change: image("app:5"), part: ids, want: []uint32{1000, 5}},
		{name: "image name and no group", change: image("app:"), part: ids, want: []uint32{1000, 0}},
		{name: "image uid and no group", change: image("1000:"), part: ids, want: []uint32{1000, 0}},
		{name: "image gid", change: image(":5"), part: ids, want: []uint32{0, 5}},
		{name: "image group", change: image(":audio"), part: ids, want: []uint32{0, 29}},
		{name: "image colon", change: image(":"), part: ids, want: []uint32{0, 0}},
		{name: "image with two colons", change: image("1:2:3"), err: "more than one colon"},
		{name: "image unknown group", change: image("app:none"), err: `user "app:none": no groups found`},
		{name: "image unknown name and gid", change: image("none:5"), err: "no users found"},
		{name: "image high uid", change: image("2147483648"), err: "2147483648 is out of range"},
		{name: "image huge uid", change: image("99999999999999999999"), err: "out of range"},
		{name: "image negative uid", change: image("-1:0"), err: "-1 is out of range"},
		{name: "image high gid", change: image("1:2147483648"), err: "2147483648 is out of range"},
		{name: "image huge gid", change: image("app:99999999999999999999"), err: "out of range"},

		{name: "uid without files", change: noFiles(image("1000")), part: ids, want: []uint32{1000, 0}},
		{name: "name without files", change: noFiles(image("app")), err: "no users found"},
		{name: "group without files", change: noFiles(image("1:audio")), err: "no groups found"},
	})
}

func TestGroups(t *testing.T) {
	gids := func(s *specs.Spec) any { return s.Process.User.AdditionalGids }
	set := func(policy runtimeapi.SupplementalGroupsPolicy, groups ...int64) func(*Container) {
		return func(c *Container) {
			security(c).SupplementalGroupsPolicy, security(c).SupplementalGroups = policy, groups
		}
	}
	const merge, strict = runtimeapi.SupplementalGroupsPolicy_Merge, runtimeapi.SupplementalGroupsPolicy_Strict
	as := func(user string, change func(*Container)) func(*Container) {
		return func(c *Container) { c.Image.User = user; change(c) }
	}
	config := func(name string, uid *runtimeapi.Int64Value, change func(*Container)) func(*Container) {
		return func(c *Container) {
			c.Image.User = "root"
			security(c).RunAsUsername, security(c).RunAsUser = name, uid
			change(c)
		}
	}
	run(t, []row{
		{name: "root's by default", change: set(merge), part: gids, want: []uint32{0, 10}},
		{name: "merged, by name", change: as("app", set(merge, 2000, 29)), part: gids, want: []uint32{29, 44, 1001, 2000}},
		{name: "merged, by uid", change: as("1000:5", set(merge, 2000)), part: gids, want: []uint32{5, 29, 44, 2000}},
		{name: "merged, name and group", change: as("app:staff", set(merge)), part: gids, want: []uint32{29, 44, 50}},
		{name: "merged, uid of the config", change: config("", id(1000), set(merge)), part: gids, want: []uint32{29, 44, 1001}},
		{name: "merged, name of the config", change: config("app", id(0), set(merge)), part: gids, want: []uint32{29, 44, 1001}},
		{name: "merged, uid without entry", change: as("77", set(merge, 3)), part: gids, want: []uint32{0, 3}},
		{name: "merged, group alone has an empty name", change: as(":5", set(merge)), part: gids, want: []uint32{5, 50}},
		{name: "merged, no files", change: func(c *Container) { as("1000", set(merge, 3))(c); c.Users = nil }, part: gids, want: []uint32{0, 3}},
		{name: "merged, group alone without files", change: func(c *Container) { as(":5", set(merge))(c); c.Users = nil }, part: gids, want: []uint32{5}},
		{name: "strict", change: as("app", set(strict, 2000, 29, 29)), part: gids, want: []uint32{29, 1001, 2000}},
		{name: "strict, no user is specified", change: set(strict, 7), part: gids, want: []uint32{7}},
		{name: "strict, nothing at all", change: set(strict), part: gids, want: []uint32(nil)},
		{name: "unknown policy", change: set(9), err: "supplemental_groups_policy: 9"},
		{name: "group over 32 bits", change: set(merge, 1<<32), err: "supplemental_groups: 4294967296 is out of range"},
		{name: "negative group", change: set(strict, -1), err: "supplemental_groups: -1 is out of range"},
		{name: "highest group", change: set(strict, 1<<31-1), part: gids, want: []uint32{1<<31 - 1}},
		{name: "high group", change: set(strict, 1<<31), err: "supplemental_groups: 2147483648"},
		{name: "more than the kernel allows", change: func(c *Container) {
			for i := range int64(maxGroups + 1) {
				security(c).SupplementalGroups = append(security(c).SupplementalGroups, i)
			}
		}, err: "65537 groups: the kernel allows 65536"},
	})
}

func TestParseUsers(t *testing.T) {
	long := strings.Repeat("x", maxUserLine)
	for _, r := range []struct {
		name, passwd, group string
		users               []userEntry
		groups              []groupEntry
		err                 string
	}{
		{name: "nothing"},
		{name: "usual", passwd: passwd, group: "root:x:0:\naudio:x:29:app,other", users: []userEntry{{"root", 0, 0}, {"app", 1000, 1001}, {"twin", 1000, 1999}}, groups: []groupEntry{{"root", "", 0}, {"audio", "app,other", 29}}},
		{name: "spaces and blank lines", passwd: "\n  a:x:1:2:::\r\n\n", group: "\t b:x:3:a \n", users: []userEntry{{"a", 1, 2}}, groups: []groupEntry{{"b", "a", 3}}},
		{name: "few fields", passwd: "a\nb:x\nc:x:3\nd:x:4:\ne:x:5:6", group: "a\nb:x\nc:x:3", users: []userEntry{{"c", 3, 0}, {"d", 4, 0}, {"e", 5, 6}}, groups: []groupEntry{{"c", "", 3}}},
		{name: "malformed numbers", passwd: "a:x:one:1\nb:x::1\nc:x:1:one\nd:x:-1:1\ne:x:2147483648:1\nf:x:1:4294967295\ng:x:2147483647:2147483647", group: "a:x:one:\nb:x:-1:\nc:x:99999999999999999999:\nd:x:2147483647:", users: []userEntry{{"g", maxID, maxID}}, groups: []groupEntry{{"d", "", maxID}}},
		{name: "comments", passwd: "#a:x:1:1", group: "#a:x:1:\n # b:x:2:", users: []userEntry{{"#a", 1, 1}}},
		{name: "NIS", passwd: "+::::::\n+", group: "+:::"},
		{name: "longest line", passwd: "a:x:1:1:" + long[8:], group: "a:x:1:" + long[6:], users: []userEntry{{"a", 1, 1}}, groups: []groupEntry{{"a", long[6:], 1}}},
		{name: "too long a line", passwd: long + "x", err: "/etc/passwd of the image: a line has more"},
		{name: "too long a line of group", group: "a:x:1:" + long, err: "/etc/group of the image: a line has more"},
		{name: "largest file", passwd: "a:x:1:1\n" + strings.Repeat("\n", maxUserFile-8), users: []userEntry{{"a", 1, 1}}},
		{name: "too large a file", passwd: strings.Repeat("\n", maxUserFile+1), err: "/etc/passwd of the image: it has more than 1048576 bytes"},
		{name: "too large a file of groups", group: strings.Repeat("\n", maxUserFile+1), err: "/etc/group of the image: it has more"},
	} {
		t.Run(r.name, func(t *testing.T) {
			got, err := ParseUsers(strings.NewReader(r.passwd), strings.NewReader(r.group))
			if r.err != "" {
				if err == nil || !strings.Contains(err.Error(), r.err) {
					t.Fatalf("error %v, want one with %q", err, r.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(got.users, r.users) || !slices.Equal(got.groups, r.groups) {
				t.Errorf("%.300v, want %.300v and %.300v", *got, r.users, r.groups)
			}
		})
	}
	if _, err := ParseUsers(broken{}, nil); err == nil || !strings.Contains(err.Error(), "read /etc/passwd") {
		t.Error(err)
	}
	if got, err := ParseUsers(nil, nil); err != nil || got == nil {
		t.Error(got, err)
	}
}

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, fmt.Errorf("read error") }

func TestUsersFirstEntryWins(t *testing.T) {
	u, err := ParseUsers(strings.NewReader("a:x:1:1\na:x:2:2\nb:x:1:3"), strings.NewReader("g:x:1:a\ng:x:2:b,a\na:x:3:a\nh:x:4:aa,a,\n"))
	if err != nil {
		t.Fatal(err)
	}
	byName, _ := u.byName("a")
	byID, _ := u.byID(1)
	gid, _ := u.groupByName("g")
	if byName.uid != 1 || byID.name != "a" || gid != 1 {
		t.Error(byName, byID, gid)
	}
	if diff := cmp.Diff([]uint32{1, 2, 4}, u.groupsOf("a")); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]uint32{4}, u.groupsOf("")); diff != "" {
		t.Error(diff)
	}
}
