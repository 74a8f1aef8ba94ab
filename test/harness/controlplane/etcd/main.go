// Command etcd is the stock etcd, built from its published module: what the
// control plane of the cluster tests keeps its objects in.
package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() {
	etcdmain.Main(os.Args)
}
