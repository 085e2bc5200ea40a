use super::*;
use crate::packet::Field;
use crate::rule::Action;

fn read(text: &str) -> Result<Vec<Group>, String> {
    let ports = |name: &str| (name == "lan").then_some(PortNo(7));
    let options = ReadOptions { ports: &ports, ..ReadOptions::default() };
    let read = read_groups(text, "g", &options).map_err(|errors| errors.to_string())?;
    Ok(read.into_iter().map(|(_, group)| group).collect())
}

#[test]
fn groups_are_read_as_ovs_ofctl_reads_them() {
    let text = "# groups\n\
        group_id=1,type=select,bucket=output:1,bucket=weight:3,bucket_id:0,actions=output:2,strip_vlan\n\
        add group_id=2, type=ff, bucket=watch_port:lan,output:lan, bucket=watch_group=1,group:1\n\
        group_id=3,type=all\n\
        group_id=4,type=indirect,bucket=actions=drop # drops\n\
        group_id=0x5,type=select,selection_method=hash,selection_method_param=9,fields(ip_src,ip_dst=255.255.255.0),bucket=output:1\n";
    let groups = read(text).unwrap();
    let output = |port| Action::Output(PortNo(port));
    let bucket = |id, weight, actions| Bucket { id, weight, watch_port: None, watch_group: None, actions };
    assert_eq!(
        groups[0].buckets,
        [bucket(1, 1, vec![output(1)]), bucket(0, 3, vec![output(2), Action::PopVlan])]
    );
    assert_eq!(groups[1].kind, GroupKind::FastFailover);
    assert_eq!(
        (groups[1].buckets[0].watch_port, groups[1].buckets[1].watch_group),
        (Some(PortNo(7)), Some(1))
    );
    assert_eq!(groups[1].buckets[1].actions, [Action::Group(1)]);
    assert_eq!((groups[2].buckets.len(), &groups[3].buckets[..]), (0, &[bucket(0, 0, vec![])][..]));
    let fields =
        vec![FieldRef::whole(Field::Ipv4Src), FieldRef::of_mask(Field::Ipv4Dst, 0xffff_ff00).unwrap()];
    assert_eq!((groups[4].id, groups[4].basis), (5, 9));
    assert_eq!(groups[4].selection, Selection::Hash(fields));
    let printed: Vec<String> = groups.iter().map(print_group).collect();
    assert_eq!(read(&printed.join("\n")).unwrap(), groups, "{printed:#?}");
}

#[test]
fn mistakes_in_groups_have_their_line_and_column() {
    let cases = [
        ("\ngroup_id=1,tpye=all", "g:2:12: `tpye`: a group has no such key; did you mean `type`?"),
        ("type=all", "g:1:9: ``: the group has no number; add `group_id=NUMBER`"),
        (
            "group_id=1,bucket=output:1",
            "g:1:27: ``: the group has no type; add `type=all`, `select`, `indirect` or `ff`",
        ),
        ("group_id=1,type=any", "g:1:17: `any`: a group's type is all, select, indirect or ff"),
        ("group_id=4294967041,type=all", "g:1:10: `4294967041`"),
        ("group_id=1,type=all\ngroup_id=1,type=all", "g:2:10: `1`: group 1 is in line 1 already"),
        ("group_id=1,type=all,bucket=outptu:1", "g:1:28: `outptu`: there is no such action"),
        (
            "group_id=1,type=all,bucket=weight:2,output:1",
            "g:1:28: `weight`: only buckets of a group of the type select",
        ),
        (
            "group_id=1,type=ff,bucket=output:1",
            "g:1:20: `bucket=output:1`: a bucket of a group of the type ff watches",
        ),
        ("group_id=1,type=all,bucket=watch_port:1,output:1", "g:1:21: `bucket=watch_port:1`: only buckets"),
        ("group_id=1,type=indirect", "g:1:17: `indirect`: a group of the type indirect has one bucket"),
        (
            "group_id=1,type=all,bucket=bucket_id:1,drop,bucket=bucket_id:1,drop",
            "g:1:45: `bucket=bucket_id:1`",
        ),
        ("group_id=1,type=all,bucket=goto_table:3", "g:1:28: `goto_table:3`"),
        (
            "group_id=1,type=all,selection_method=hash",
            "g:1:21: `selection_method`: only a group of the type select",
        ),
        ("group_id=1,type=select,selection_method=rr", "g:1:41: `rr`: a selection_method is hash or dp_hash"),
        ("group_id=1,type=select,fields=ip_src", "g:1:24: `fields`: fields need"),
        ("group_id=1,type=all,command_bucket_id=all", "g:1:21: `command_bucket_id`"),
    ];
    for (text, message) in cases {
        let error = read(text).unwrap_err();
        assert!(error.contains(message), "{text}\n{error}\n{message}");
    }
}
