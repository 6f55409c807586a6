module sidelook-cluster

go 1.26.0
